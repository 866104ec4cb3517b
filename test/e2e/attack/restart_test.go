package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/kit/certs"
)

// guard puts policies in force and returns a load of requests that they refuse.
func (b *bed) guard(t *testing.T) func(what string) {
	t.Helper()
	b.enforce(t, "", mutual("STRICT"), denyPaths("/a"))
	return b.press(t)
}

// press is the load of what guard refuses.
func (b *bed) press(t *testing.T) func(what string) {
	t.Helper()
	gaps := readGaps(t)
	denied, open := b.pressure(t, get("/a").as("cli")), b.pressure(t, get("/x"))
	return func(what string) {
		t.Helper()
		denied.end(t, gaps, what+", DENY")
		open.end(t, gaps, what+", STRICT")
	}
}

// closed wants what guard refuses to be refused.
func (b *bed) closed(t *testing.T, gaps map[string]string, what string) {
	t.Helper()
	for name, h := range map[string]hit{"DENY": get("/a").as("cli"), "STRICT": get("/x")} {
		o := b.strike(t.Context(), h)
		var wrong []string
		if o.reached() {
			wrong = append(wrong, "it must be refused")
		}
		verdict(t, gaps, fmt.Sprintf("%s/%s: %s", t.Name(), what, name), wrong, o)
	}
}

// kept waits until the configuration that the agent keeps has the policies that are in force.
func (b *bed) kept(t *testing.T) {
	t.Helper()
	await(t, "the kept configuration to have the policies", func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(b.agent.Dir(), "last-known-good"))
		if err == nil && !bytes.Contains(text, fmt.Appendf(nil, "/set-%d", b.generation)) {
			err = errors.New("it is older")
		}
		return err
	})
}

// crash kills the agent and its Envoy at once.
func (b *bed) crash(t *testing.T) {
	t.Helper()
	pids, err := b.agent.EnvoyPIDs()
	if err != nil {
		t.Fatal(err)
	}
	b.agent.End(syscall.SIGKILL)
	_ = syscall.Kill(pids[len(pids)-1], syscall.SIGKILL)
}

// TestRestarts: nothing is more open while the control plane, Envoy or the agent ends and starts again.
func TestRestarts(t *testing.T) {
	b := enter(t)
	gaps := readGaps(t)
	end := b.guard(t)
	b.plane.Kill()
	b.mustStart(t)
	end("the control plane starts again")

	b.enforce(t, "", mutual("STRICT"), denyPaths("/a"))
	b.kept(t)
	b.plane.Kill()
	end = b.press(t)
	pids, err := b.agent.EnvoyPIDs()
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(pids[len(pids)-1], syscall.SIGKILL)
	b.until(t, "a good request to pass when Envoy has started again", get("/x").as("cli"), reached)
	b.closed(t, gaps, "Envoy starts again without a control plane")
	end("Envoy starts again without a control plane")

	end = b.press(t)
	b.crash(t)
	b.mustRun(t) // without a control plane it has no certificate, so that nothing passes under STRICT
	b.closed(t, gaps, "the agent starts again without a control plane")
	end("the agent starts again without a control plane")

	end = b.press(t)
	b.mustStart(t)
	b.enforce(t, "", mutual("STRICT"), denyPaths("/a", "/b"))
	end("the control plane comes back")
	b.free(t)
}

// TestCrashAfterChange: policies in force when everything crashed are in force when the agent starts again without a control plane.
func TestCrashAfterChange(t *testing.T) {
	b := enter(t)
	gaps := readGaps(t)
	b.free(t)
	b.kept(t)
	b.enforce(t, "", mutual("STRICT"), denyPaths("/a"))
	b.plane.Kill()
	b.crash(t)
	b.mustRun(t)
	b.closed(t, gaps, "a change and a crash")
	b.mustStart(t)
	b.free(t)
}

// TestFreshStart: a workload whose agent starts for the first time, without a control plane, lets nothing in before it has policies.
func TestFreshStart(t *testing.T) {
	b := enter(t)
	b.enforce(t, "", mutual("STRICT"), denyPaths("/a"))
	b.plane.Kill()
	b.crash(t)
	if err := os.Remove(filepath.Join(b.agent.Dir(), "last-known-good")); err != nil {
		t.Fatal(err)
	}
	end := b.press(t)
	if err := b.launch(); err != nil {
		t.Fatal(err)
	}
	b.mustStart(t)
	if err := b.agent.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.enforce(t, "", mutual("STRICT"), denyPaths("/a"))
	end("a fresh start")
	b.free(t)
}

func (b *bed) mustStart(t *testing.T) {
	t.Helper()
	if err := b.plane.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (b *bed) mustRun(t *testing.T) {
	t.Helper()
	if err := b.startAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestResumption: a session of TLS ends with the certificate that it was begun with.
func TestResumption(t *testing.T) {
	b := enter(t)
	gaps := readGaps(t)
	b.enforce(t, "", mutual("STRICT"), authorize("ALLOW", from(object{"principals": []string{"cluster.local/ns/ops/sa/admin"}})))
	until := time.Now().Add(4 * time.Second).Truncate(time.Second)
	clients := map[string]*tls.Config{}
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		if err := b.ids.issueTo(b.ids.mesh, name, certs.Identity{URIs: []string{admin}}, func(c *x509.Certificate) { c.NotAfter = until }); err != nil {
			t.Fatal(err)
		}
		c := b.ids.config(name, []string{"istio-http/1.1"})
		c.MinVersion, c.MaxVersion, c.ClientSessionCache, c.ServerName = version, version, tls.NewLRUClientSessionCache(4), "web"
		if o, _ := b.session(t, c); !o.reached() {
			t.Errorf("%s: while the certificate is valid: %s", name, o)
		}
		clients[name] = c
	}
	pause(t.Context(), time.Until(until.Add(1500*time.Millisecond)))
	for name, c := range clients {
		for n := range 2 {
			o, resumed := b.session(t, c)
			var wrong []string
			if o.reached() {
				wrong = append(wrong, fmt.Sprintf("it must be refused (the session was resumed: %t)", resumed))
			}
			verdict(t, gaps, fmt.Sprintf("%s/%s, time %d", t.Name(), name, n+1), wrong, o)
		}
	}
	b.free(t)
}

// session sends a request over a connection of TLS.
func (b *bed) session(t *testing.T, settings *tls.Config) (o outcome, resumed bool) {
	t.Helper()
	raw, err := b.world.Dial(t.Context(), nil, fmt.Sprintf("%s:%d", workload, httpPort))
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(raw, settings)
	defer c.Close() //nolint:errcheck // nothing is buffered
	_ = c.SetDeadline(time.Now().Add(patience))
	if err := c.HandshakeContext(t.Context()); err != nil {
		return outcome{detail: err.Error()}, false
	}
	if _, err := c.Write([]byte(get("/").text())); err != nil {
		return outcome{detail: err.Error()}, c.ConnectionState().DidResume
	}
	return firstAnswer(c), c.ConnectionState().DidResume
}

// TestOpenConnections: connections that were open before a policy came end within the drain time.
func TestOpenConnections(t *testing.T) {
	b := enter(t)
	for what, p := range map[string]policy{"DENY": authorize("DENY", object{}), "STRICT": mutual("STRICT")} {
		b.free(t)
		bytesConn, err := b.dial(t.Context(), line())
		if err != nil {
			t.Fatal(err)
		}
		httpConn, err := b.dial(t.Context(), get("/"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(bytesConn, "hello\n")
		fmt.Fprint(httpConn, get("/").text())
		if a, o := firstAnswer(bytesConn), firstAnswer(httpConn); !a.reached() || !o.reached() {
			t.Fatalf("before: %s, %s", a, o)
		}
		b.enforce(t, "", p)
		await(t, what+" to end a connection of bytes", func(context.Context) error {
			_ = bytesConn.SetDeadline(time.Now().Add(b.limit()))
			fmt.Fprint(bytesConn, "hello\n")
			if o := firstAnswer(bytesConn); o.reached() {
				return fmt.Errorf("%s", o)
			}
			return nil
		})
		await(t, what+" to refuse requests on a connection of HTTP/1.1", func(context.Context) error {
			_ = httpConn.SetDeadline(time.Now().Add(b.limit()))
			fmt.Fprint(httpConn, get("/").text())
			if o := firstAnswer(httpConn); o.reached() {
				return fmt.Errorf("%s", o)
			}
			return nil
		})
		bytesConn.Close()
		httpConn.Close()
	}
	b.free(t)
}
