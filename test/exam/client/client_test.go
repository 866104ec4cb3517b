package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
)

func TestClassify(t *testing.T) {
	for want, err := range map[string]error{
		"refused":                 fmt.Errorf("dial: %w", syscall.ECONNREFUSED),
		"reset":                   syscall.ECONNRESET,
		"eof":                     io.ErrUnexpectedEOF,
		"timeout":                 os.ErrDeadlineExceeded,
		"tls:unknown certificate": errors.New("remote error: tls: unknown certificate"),
		"tls:not tls":             tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"},
	} {
		if got := classify(err); got != want {
			t.Errorf("classify(%v) = %q, want %q", err, got, want)
		}
	}
}
