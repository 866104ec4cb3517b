package wire

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// agent answers one request on a socket with f, whose error fails the test. It returns the path of the socket.
func agent(t *testing.T, f func(c *net.UnixConn) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), Socket)
	l, err := net.ListenUnix(Network, &net.UnixAddr{Name: path, Net: Network})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		c, err := l.AcceptUnix()
		if err == nil {
			err = errors.Join(f(c), c.Close())
		}
		ended <- err
	}()
	t.Cleanup(func() {
		if err := errors.Join(<-ended, l.Close()); err != nil {
			t.Error(err)
		}
	})
	return path
}

var (
	web    = Request{Command: Add, Namespace: "shop", Name: "web", UID: "u"}
	longer = Limits{Decision: time.Minute, Result: time.Minute}
)

// ask asks about the pod web with the descriptor of a file.
func ask(t *testing.T, path string, limits Limits) (Decision, error) {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return Ask(t.Context(), path, web, f, limits)
}

// TestConversation: the agent receives the request and the descriptor, and the plugin gets the result.
func TestConversation(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the agent answers nobody else")
	}
	for name, c := range map[string]struct {
		decision    Decision
		result      *Result
		err         string
		unreachable bool
	}{
		"captured":     {Decision{Capture: true}, &Result{}, "", false},
		"failed":       {Decision{Capture: true}, &Result{"no such chain"}, "no such chain", false},
		"died between": {Decision{Capture: true}, nil, "has not reported the result", false},
		"outside":      {Decision{Reason: "the pod has no proxy"}, nil, "", false},
		"unknown":      {Decision{Unknown: true, Reason: "no answer"}, nil, "no answer", true},
	} {
		path := agent(t, func(conn *net.UnixConn) error {
			r, netns, err := Receive(conn)
			if err != nil {
				return err
			}
			defer netns.Close()
			if info, err := netns.Stat(); r != web || err != nil || info.Mode()&os.ModeCharDevice == 0 {
				t.Errorf("%s: received %+v, %v, %v", name, r, info, err)
			}
			err = Send(conn, c.decision)
			if c.result != nil {
				err = errors.Join(err, Send(conn, c.result))
			}
			return err
		})
		d, err := ask(t, path, longer)
		if d != c.decision || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) || errors.Is(err, ErrUnreachable) != c.unreachable {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

// TestUnreachable: without an agent, and with one that says nothing, there is no decision.
func TestUnreachable(t *testing.T) {
	if _, err := ask(t, filepath.Join(t.TempDir(), Socket), longer); !errors.Is(err, ErrUnreachable) {
		t.Errorf("without a socket: %v", err)
	}
	release := make(chan struct{})
	path := agent(t, func(*net.UnixConn) error { <-release; return nil })
	if _, err := ask(t, path, Limits{Decision: 10 * time.Millisecond}); !errors.Is(err, ErrUnreachable) {
		t.Errorf("an agent that hangs: %v", err)
	}
	close(release)
}

// TestRefused: requests that are none are refused, and leave no descriptor open.
func TestRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the agent answers nobody else")
	}
	for packet, want := range map[string]string{
		`{"command":"ADD","namespace":"a","name":"b"}`: "no network namespace",
		`{`: "no network namespace",
	} {
		path := agent(t, func(c *net.UnixConn) error {
			if _, _, err := Receive(c); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", packet, err, want)
			}
			return nil
		})
		c, err := net.Dial(Network, path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(packet)); err != nil {
			t.Error(err)
		}
		_ = c.Close()
	}
}
