package testbed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

func TestUntil(t *testing.T) {
	n := 0
	if err := Until(t.Context(), "three", func(context.Context) error {
		if n++; n < 3 {
			return errors.New("not yet")
		}
		return nil
	}); err != nil || n != 3 {
		t.Errorf("Until = %v after %d looks, want success at the third", err, n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	reason := errors.New("no such thing")
	if err := Until(ctx, "a miracle", func(context.Context) error { return reason }); !errors.Is(err, reason) || !strings.Contains(err.Error(), "a miracle") {
		t.Errorf("Until = %v, want what was waited for and why it did not come", err)
	}
}

// TestFreePorts: a port is handed out once, though no program has listened there yet.
func TestFreePorts(t *testing.T) {
	seen := map[int]bool{}
	for range 20 {
		ports, err := FreePorts(5)
		if err != nil || len(ports) != 5 {
			t.Fatalf("FreePorts = %v, %v", ports, err)
		}
		for _, p := range ports {
			if seen[p] || p < firstPort || p > lastPort {
				t.Fatalf("port %d comes twice, or is one that the system gives away", p)
			}
			seen[p] = true
			if reserve(p) == nil {
				t.Fatalf("another process may have port %d, too", p)
			}
		}
	}
}

func TestBackendAndLoad(t *testing.T) {
	b, err := StartHTTP("v1", 0)
	if err != nil {
		t.Fatal(err)
	}
	client := NewClient()
	a, err := Call(t.Context(), client, b.Port, "reviews", "/x", "end-user", "jason")
	if err != nil || a.Name != "v1" || a.Host != "reviews" || a.Path != "/x" || a.Headers.Get("end-user") != "jason" {
		t.Errorf("Call = %+v, %v", a, err)
	}
	l := StartLoad(t.Context(), b.Port, "reviews", 2, 200)
	enough := func(what string, count func(Tally) int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		sum := 0
		if err := Until(ctx, what, func(context.Context) error {
			if sum += count(l.Take()); sum < 5 {
				return fmt.Errorf("got %d", sum)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	enough("answers", func(t Tally) int { return t.Answers["v1"] })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	enough("failures", func(t Tally) int { return t.Failures })
	l.Stop()
	client.CloseIdleConnections()
	if _, err := Call(t.Context(), client, b.Port, "reviews", "/"); err == nil || Status(err) != 0 {
		t.Errorf("a closed backend answers: %v", err)
	}
}

func TestTCPBackend(t *testing.T) {
	b, err := StartTCP("db")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", Loopback(b.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, `"name":"db"`) {
		t.Fatalf("greeting %q, %v", line, err)
	}
	fmt.Fprintln(conn, "hello")
	if line, err := r.ReadString('\n'); err != nil || line != "hello\n" {
		t.Fatalf("echo %q, %v", line, err)
	}
	_ = b.Close() // ends though a connection is open
}

// TestReady: waiting for a program that ends returns its end.
func TestReady(t *testing.T) {
	p, err := start(nil, "talker", t.TempDir(), "/bin/sh", "-c", "echo last words; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	err = ready(t.Context(), p, "what never comes", func(context.Context) error { return errors.New("not ready") })
	if err == nil || !strings.Contains(err.Error(), "last words") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("ready = %v, want the end of the program and of its log", err)
	}
}
