// Package agent holds the tests of pilot-agent with a real Envoy and a real control plane: readiness, the end with
// requests under way, crashes, orders, the command line, and that Envoy takes every bootstrap the agent writes.
package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

// patience is how long anything may take to be seen. A busy machine may take its time.
const patience = time.Minute

// The programs under test, found or built once by TestMain.
var root, agentBinary, discoveryBinary, controlBinary, envoyBinary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "agent-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = prepare(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 1
	}
	return m.Run()
}

func prepare(ctx context.Context, dir string) (err error) {
	if root, err = repo.Root(); err != nil {
		return err
	}
	if envoyBinary, _, err = envoy.Find(ctx, root); err != nil {
		return err
	}
	for name, into := range map[string]*string{"pilot-agent": &agentBinary, "pilot-discovery": &discoveryBinary, "pilotctl": &controlBinary} {
		if *into, err = testbed.FindOrBuild(ctx, root, name, dir); err != nil {
			return err
		}
	}
	return nil
}

// bed is a control plane with one service, web, and its backend, which answers when it is let.
type bed struct {
	*testing.T
	*testbed.Discovery
	port    int // where sidecars listen for web
	backend *backend
	client  *http.Client
}

const webHost = "web.shop.svc.cluster.local"

func newBed(t *testing.T) *bed {
	t.Helper()
	t.Parallel()
	ports, err := testbed.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	d, err := testbed.NewDiscovery(discoveryBinary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, Discovery: d, port: ports[0], backend: newBackend(t), client: testbed.NewClient()}
	b.client.Timeout = patience
	t.Cleanup(b.client.CloseIdleConnections)
	b.web(b.backend.port)
	return b
}

// web declares web with a backend at a port.
func (b *bed) web(port int) {
	b.Helper()
	if _, err := b.Write("web.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [%s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, name: main, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {main: %d}}]
`, webHost, b.port, port)); err != nil {
		b.Fatal(err)
	}
}

// serve starts the control plane.
func (b *bed) serve() {
	b.Helper()
	if err := b.Discovery.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(b.Discovery.Stop)
}

// options are the options that agents run with: the end does not take longer than it must.
func options(args ...string) testbed.AgentOptions {
	return testbed.AgentOptions{Binary: agentBinary, Envoy: envoyBinary, Args: append([]string{"--terminationDrainDuration=10ms"}, args...)}
}

// agent starts an agent and waits for nothing.
func (b *bed) agent(o testbed.AgentOptions, node testbed.Node) *testbed.Agent {
	b.Helper()
	node.Name, node.Namespace, node.Discovery = cmp.Or(node.Name, "app"), "shop", cmp.Or(b.GRPC, b.Secure)
	a, err := testbed.StartAgent(o, b.TempDir(), node)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		a.Stop()
		if b.Failed() {
			b.Logf("the log of the agent ends:\n%s", a.Log())
		}
	})
	return a
}

// ready starts an agent and waits until it is ready.
func (b *bed) ready(o testbed.AgentOptions, node testbed.Node) *testbed.Agent {
	b.Helper()
	a := b.agent(o, node)
	if err := a.AwaitReady(b.Context()); err != nil {
		b.Fatal(err)
	}
	return a
}

// await waits until check passes.
func (b *bed) await(what string, check func(context.Context) error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	if err := testbed.Until(ctx, what, check); err != nil {
		b.Fatal(err)
	}
}

// ends waits for the agent's end and wants an exit code, and that no Envoy is left.
func (b *bed) ends(a *testbed.Agent, want int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	if code, err := a.Wait(ctx); err != nil || code != want {
		b.Errorf("the agent ended with %d, %v; want %d", code, err, want)
	}
	b.orphans(a)
}

// orphans wants no Envoy to be left.
func (b *bed) orphans(a *testbed.Agent) {
	b.Helper()
	pids, err := a.EnvoyPIDs()
	if err != nil {
		b.Fatal(err)
	}
	for _, pid := range pids {
		b.await(fmt.Sprintf("the end of Envoy %d", pid), func(context.Context) error {
			if testbed.Exists(pid) {
				return errors.New("it runs")
			}
			return nil
		})
	}
}

// get asks the sidecar for web.
func (b *bed) get(ctx context.Context) (int, error) { return b.request(ctx, b.port, webHost) }

// request sends a request for a host to a port of the sidecar and returns the status of the answer.
func (b *bed) request(ctx context.Context, port int, host string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+testbed.Loopback(port)+"/", nil)
	if err != nil {
		return 0, err
	}
	req.Host = host
	resp, err := b.client.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// answers waits until a request is answered.
func (b *bed) answers() {
	b.Helper()
	b.await("an answer from web", func(ctx context.Context) error {
		code, err := b.get(ctx)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d", code)
		}
		return err
	})
}

// backend answers at once, or holds requests back between holdBack and release.
type backend struct {
	port    int
	arrived chan struct{}      // one for each request held back
	hold    chan chan struct{} // holds one: nil if nothing is held back, else closed by release
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	l, err := testbed.Listen()
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{port: l.Addr().(*net.TCPAddr).Port, arrived: make(chan struct{}), hold: make(chan chan struct{}, 1)}
	b.hold <- nil
	server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		release := <-b.hold
		b.hold <- release
		if release == nil {
			return
		}
		b.arrived <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})}
	go func() { _ = server.Serve(l) }() // ends by Close
	t.Cleanup(func() { _ = server.Close() })
	return b
}

// holdBack makes the backend hold requests back until the returned function is called.
func (b *backend) holdBack() (release func()) {
	<-b.hold
	held := make(chan struct{})
	b.hold <- held
	return func() { close(held) }
}

// under sends a request that is under way when this returns; the function waits for its answer.
func (b *bed) under() (answer func() (int, error)) {
	b.Helper()
	type result struct {
		code int
		err  error
	}
	done := make(chan result, 1)
	go func() {
		code, err := b.get(context.WithoutCancel(b.Context()))
		done <- result{code, err}
	}()
	select {
	case <-b.backend.arrived:
	case r := <-done:
		b.Fatalf("the request was not held back: %d, %v", r.code, r.err)
	case <-time.After(patience):
		b.Fatal("the request did not arrive")
	}
	return func() (int, error) {
		r := <-done
		return r.code, r.err
	}
}

// command runs pilot-agent to its end.
func command(t *testing.T, env []string, args ...string) (code int, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, agentBinary, args...)
	cmd.Env = append([]string{"PATH=/usr/bin:/bin", "INSTANCE_IP=127.1.0.1"}, env...)
	cmd.Dir = t.TempDir()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// goldens are the bootstraps that the agent's own tests pin.
func goldens(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "internal/agent/boot/testdata/*.json"))
	if err != nil || len(files) < 5 {
		t.Fatalf("found %d bootstraps: %v", len(files), err)
	}
	return files
}
