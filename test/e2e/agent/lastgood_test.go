package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// lonely is an agent that is started again and again with the same files, also while there is no control plane.
type lonely struct {
	*bed
	options testbed.AgentOptions
	node    testbed.Node
	dir     string
	*testbed.Agent
}

// start starts the agent, and returns how long it took until a request was answered through its Envoy.
func (l *lonely) start() time.Duration {
	l.Helper()
	began := time.Now()
	a, err := testbed.StartAgent(l.options, l.dir, l.node)
	if err != nil {
		l.Fatal(err)
	}
	l.Agent = a
	l.Cleanup(func() {
		a.Stop()
		if l.Failed() {
			l.Logf("the log of the agent ends:\n%s", a.Log())
		}
	})
	l.answers()
	return time.Since(began)
}

// crash ends the only Envoy, and waits until the agent has started another one.
func (l *lonely) crash() {
	l.Helper()
	pids, err := l.EnvoyPIDs()
	if err != nil || len(pids) != 1 {
		l.Fatalf("Envoys %v: %v", pids, err)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		l.Fatal(err)
	}
	l.await("another Envoy", func(context.Context) error {
		if pids, err = l.EnvoyPIDs(); err == nil && len(pids) < 2 {
			err = fmt.Errorf("there are %v", pids)
		}
		return err
	})
}

// file is where the last known good configuration is.
func (l *lonely) file() string { return filepath.Join(l.dir, l.node.Name, "last-known-good") }

// stored waits until the complete configuration is in the file. Without that an agent that starts later has nothing to serve.
func (l *lonely) stored() {
	l.Helper()
	l.await("the complete configuration to be stored", func(context.Context) error {
		text, err := os.ReadFile(l.file())
		if err == nil && !strings.Contains(string(text), `"complete":["type.googleapis.com/envoy.config.cluster`) {
			err = errors.New("it is a part")
		}
		return err
	})
}

// followed moves the backend while there is no control plane, starts one, and waits until requests reach the new place.
func (l *lonely) followed() {
	l.Helper()
	moved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	l.Cleanup(moved.Close)
	l.web(moved.Listener.Addr().(*net.TCPAddr).Port)
	l.serve()
	l.await("the change that was made without a control plane", func(ctx context.Context) error {
		code, err := l.get(ctx)
		if err == nil && code != http.StatusTeapot {
			err = fmt.Errorf("status %d", code)
		}
		return err
	})
	l.probed("ready\n")
}

// probed waits until a readiness probe is answered with a text.
func (l *lonely) probed(text string) {
	l.Helper()
	l.await("a probe that is answered "+text, func(ctx context.Context) error {
		page, err := l.Status(ctx, "/healthz/ready")
		if err == nil && !strings.HasPrefix(page, text) {
			err = errors.New(page)
		}
		return err
	})
}

// alone makes a bed with a control plane and an agent that has been ready, and stops the control plane.
func alone(t *testing.T, sotw, secure bool) *lonely {
	l := &lonely{bed: newBed(t), options: options(), node: testbed.Node{Name: "app", Namespace: "shop", SotW: sotw}, dir: t.TempDir()}
	if secure {
		l.TLSOnly()
	}
	l.serve()
	if secure {
		l.options = l.certified("app")
	}
	l.node.Discovery = l.GRPC + l.Secure
	l.start()
	l.probed("ready\n")
	l.stored()
	l.Discovery.Stop()
	l.probed("ready, but stale: ")
	l.answers()
	return l
}

// TestLastKnownGood: while there is no control plane, Envoy and the agent are restarted, and the application is reached. When it is back, the changes
// of that time arrive.
func TestLastKnownGood(t *testing.T) {
	for name, c := range map[string]struct{ sotw, secure bool }{"delta": {}, "whole state": {sotw: true}, "over TLS": {secure: true}} {
		t.Run(name, func(t *testing.T) {
			l := alone(t, c.sotw, c.secure)
			l.crash()
			l.answers()
			l.End(syscall.SIGTERM)
			took := l.start()
			t.Logf("the agent was started again without a control plane; the first answer came after %v", took)
			l.probed("ready, but stale: ")
			if page, err := l.Status(t.Context(), "/metrics"); err != nil || strings.Contains(page, "pilot_agent_control_plane_unreachable_since_seconds 0\n") {
				t.Errorf("the metrics do not say since when there is no control plane: %v", err)
			}
			l.followed()
			if _, out := l.pilotctl("proxy-status"); !strings.Contains(out, "app.shop was stale from ") {
				t.Errorf("proxy-status does not say that the proxy was stale:\n%s", out)
			}
		})
	}
}

// TestLastKnownGoodFile: a file that is not right is not used, and says so; it does not keep the agent from starting.
func TestLastKnownGoodFile(t *testing.T) {
	l := alone(t, false, false)
	l.End(syscall.SIGTERM)
	good, err := os.ReadFile(l.file())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(l.file()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for name, c := range map[string]struct {
		text, says string
	}{
		"torn":          {string(good[:len(good)/2]), "its checksum is wrong"},
		"empty":         {"", "it is cut off"},
		"another proxy": {strings.Replace(string(good), "~app.shop~", "~bad.shop~", 1), "its checksum is wrong"},
		"text":          {strings.Repeat("hello\n", 100), "it is no configuration of a proxy"},
	} {
		if err := os.WriteFile(l.file(), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := testbed.StartAgent(l.options, l.dir, l.node)
		if err != nil {
			t.Fatal(err)
		}
		l.await(name+": the agent to say why", func(context.Context) error {
			if log, err := a.WholeLog(); err != nil || !strings.Contains(log, c.says) || !strings.Contains(log, "the control plane cannot be reached") {
				return errors.Join(err, errors.New(log))
			}
			return nil
		})
		a.End(syscall.SIGTERM)
	}
	if err := os.WriteFile(l.file(), good, 0o600); err != nil {
		t.Fatal(err)
	}
	l.start()
}
