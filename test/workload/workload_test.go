package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/kit/echo"
)

// free returns an address of loopback that no program listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestEveryProtocol serves all protocols and calls each: ten requests, all answered by the right server over the right
// protocol.
func TestEveryProtocol(t *testing.T) {
	web, encrypted, remote, first, second, packets := free(t), free(t), free(t), free(t), free(t), free(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	var log bytes.Buffer
	go func() {
		served <- serve(ctx, []string{"--name", "a", "--version", "v1", "--drain", "1s", "--http", web, "--tls", encrypted, "--grpc", remote,
			"--tcp-server-first", first, "--tcp", second, "--udp", packets}, &log)
	}()
	deadline := time.Now().Add(10 * time.Second)
	for call(ctx, []string{"grpc://" + remote}, &bytes.Buffer{}) != nil {
		if time.Now().After(deadline) {
			t.Fatal("the server does not answer")
		}
	}
	for _, c := range []struct{ target, protocol string }{
		{"http://" + web + "/x?y=1", "HTTP/1.1"}, {"h2c://" + web, "HTTP/2.0"}, {"https://" + encrypted, "HTTP/1.1"}, {"h2://" + encrypted, "HTTP/2.0"},
		{"grpc://" + remote, "gRPC"}, {"tcp-server-first://" + first, "tcp-server-first"}, {"tcp://" + second, "tcp-client-first"}, {"udp://" + packets, "udp"},
	} {
		for _, fresh := range []bool{false, true} {
			var out bytes.Buffer
			if err := call(ctx, []string{"--count", "10", "--workers", "2", fmt.Sprintf("--fresh=%v", fresh), "--body", "hello", "--header", "x-test: yes", "-o", "answers", c.target}, &out); err != nil {
				t.Errorf("%s: %v", c.target, err)
				continue
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			var r echo.Report
			if err := json.Unmarshal([]byte(lines[0]), &r); err != nil || len(lines) != 10 || r.Name != "a" || r.Version != "v1" || r.Protocol != c.protocol {
				t.Errorf("%s: %d answers, the first %s (%v); want 10 of a v1 over %s", c.target, len(lines), lines[0], err, c.protocol)
			}
			if encrypted := strings.HasPrefix(c.target, "https") || strings.HasPrefix(c.target, "h2:"); (r.TLS != nil) != encrypted {
				t.Errorf("%s: TLS %v", c.target, r.TLS)
			}
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// TestFailuresAreErrors: a load that loses requests must not look like one that does not.
func TestFailuresAreErrors(t *testing.T) {
	var out bytes.Buffer
	err := call(t.Context(), []string{"--count", "3", "-o", "json", "http://" + free(t)}, &out)
	var s Summary
	if json.Unmarshal(out.Bytes(), &s) != nil || s.Requests != 3 || s.Failures != 3 || err == nil || !strings.Contains(err.Error(), "3 of 3") {
		t.Errorf("error %v, summary %s", err, out.String())
	}
}
