package loop

import (
	"errors"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
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

// TestTakesHosts: only the measured versions of Envoy get virtual hosts as resources of their own. Other programs and versions, and a node that does not
// say its version, get whole route configurations.
func TestTakesHosts(t *testing.T) {
	for _, c := range []struct {
		agent        string
		major, minor uint32
		want         bool
	}{
		{"envoy", 1, 40, true},
		{"envoy", 1, 37, true},
		{"envoy", 1, 36, false},
		{"envoy", 1, 41, false},
		{"envoy", 2, 40, false},
		{"gRPC Go", 1, 40, false},
		{"", 1, 40, false},
	} {
		node := &corev3.Node{UserAgentName: c.agent, UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{
			UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: c.major, MinorNumber: c.minor}},
		}}
		if got := takesHosts(node); got != c.want {
			t.Errorf("takesHosts(%s %d.%d) = %t, want %t", c.agent, c.major, c.minor, got, c.want)
		}
	}
	if takesHosts(&corev3.Node{UserAgentName: "envoy"}) {
		t.Error("an Envoy of unknown version gets virtual hosts as resources of their own")
	}
}
