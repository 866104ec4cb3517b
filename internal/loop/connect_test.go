package loop

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestWhy: the log says in words why a stream has ended.
func TestWhy(t *testing.T) {
	for want, cause := range map[string]error{
		"the proxy closed the stream":             nil,
		"the connection ended":                    status.Error(codes.Canceled, "context canceled"),
		"the token of the client has expired":     status.Error(codes.Unauthenticated, "the token of the client has expired"),
		"a worker found something else to report": errors.New("a worker found something else to report"),
	} {
		if got := why(cause); got != want {
			t.Errorf("why(%v) = %q, want %q", cause, got, want)
		}
	}
}
