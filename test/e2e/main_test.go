// Package e2e holds the tests in which a real control plane drives real Envoys, and requests go where the
// configuration says.
//
// They run on one machine without root: sidecars capture nothing (INTERCEPTION_MODE NONE), so an HTTP service of port
// p is reached at 127.0.0.1:p. Every test has a control plane, a configuration directory and ports of its own, and
// ends by asking its Envoys whether they ever rejected anything.
package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

// patience is how long a change may take to be seen. Changes take milliseconds; a busy machine may take its time.
const patience = time.Minute

// The programs under test, found or built once by TestMain.
var discoveryBinary, agentBinary, envoyBinary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	root, err := repo.Root()
	if err != nil {
		return fail(err)
	}
	ctx := context.Background()
	if envoyBinary, _, err = envoy.Find(ctx, root); err != nil {
		return fail(err)
	}
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	var flags []string
	if raced {
		flags = append(flags, "-race")
	}
	for name, into := range map[string]*string{"pilot-discovery": &discoveryBinary, "pilot-agent": &agentBinary} {
		if *into, err = testbed.FindOrBuild(ctx, root, name, dir, flags...); err != nil {
			return fail(err)
		}
	}
	return m.Run()
}

// bed is the control plane and the Envoys of one test. Its methods fail the test.
type bed struct {
	*testing.T
	*testbed.Discovery
	client *http.Client
}

// newBed starts a control plane on the given files: name, text, name, text ...
func newBed(t *testing.T, files ...string) *bed {
	t.Helper()
	return newBedWith(t, nil, files...)
}

// newBedWith starts a control plane with arguments of its own.
func newBedWith(t *testing.T, args []string, files ...string) *bed {
	t.Helper()
	d, err := testbed.NewDiscovery(discoveryBinary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d.Args = args
	b := &bed{T: t, Discovery: d, client: testbed.NewClient()}
	t.Cleanup(b.client.CloseIdleConnections)
	for i := 0; i < len(files); i += 2 {
		b.write(files[i], files[i+1])
	}
	b.start()
	t.Cleanup(func() {
		if err := d.Alive(); err != nil {
			t.Error(err)
		}
		d.Stop()
		if err := d.Accident(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the log of pilot-discovery ends:\n%s", d.Log())
		}
	})
	return b
}

func (b *bed) start() {
	b.Helper()
	if err := b.Discovery.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) write(name, text string) time.Time {
	b.Helper()
	at, err := b.Discovery.Write(name, text)
	if err != nil {
		b.Fatal(err)
	}
	return at
}

func (b *bed) remove(name string) {
	b.Helper()
	if err := b.Discovery.Remove(name); err != nil {
		b.Fatal(err)
	}
}

// envoy starts an Envoy that must not reject anything.
func (b *bed) envoy(node testbed.Node) *testbed.Envoy {
	b.Helper()
	e := b.suspiciousEnvoy(node)
	b.Cleanup(func() { b.sound(e) })
	return e
}

// suspiciousEnvoy starts an Envoy that may reject things.
func (b *bed) suspiciousEnvoy(node testbed.Node) *testbed.Envoy {
	b.Helper()
	node.Discovery = b.GRPC
	e, err := testbed.StartEnvoy(b.Context(), envoyBinary, b.TempDir(), node)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.Stop)
	return e
}

// sound fails the test if the Envoy has ended or has ever rejected anything.
func (b *bed) sound(e *testbed.Envoy) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := e.Alive(); err != nil {
		b.Error(err)
	} else if err := e.Rejected(ctx); err != nil {
		b.Error(err)
	}
	if b.Failed() {
		b.Logf("the log of Envoy %s ends:\n%s", e.Node.Name, e.Log())
	}
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

// answers waits until a request to the service is answered by the named backend.
func (b *bed) answers(s service, backend, path string, headers ...string) {
	b.Helper()
	b.await(s.name+path+" to be answered by "+backend, func(ctx context.Context) error {
		a, err := testbed.Call(ctx, b.client, s.port, s.host(), path, headers...)
		if err == nil && a.Name != backend {
			err = fmt.Errorf("answered by %s", a.Name)
		}
		return err
	})
}

// unanswered waits until no backend answers for the service.
func (b *bed) unanswered(s service) {
	b.Helper()
	b.await(s.name+" to be gone", func(ctx context.Context) error {
		a, err := testbed.Call(ctx, b.client, s.port, s.host(), "/")
		if err == nil {
			return fmt.Errorf("answered by %s", a.Name)
		}
		return ctx.Err() // out of time is no answer to the question
	})
}

// backend starts an HTTP backend for the time of the test.
func backend(t *testing.T, name string) *testbed.Backend {
	t.Helper()
	s, err := testbed.StartHTTP(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// service is a ServiceEntry whose versions are backends.
type service struct {
	name     string
	port     int
	protocol string // HTTP if empty
	versions []*testbed.Backend
	sidecars []string // addresses of the versions' own sidecars, if they have some
}

// newService finds a port for a service whose backends are the versions v1, v2, ...
func newService(t *testing.T, name string, versions ...*testbed.Backend) service {
	t.Helper()
	ports, err := testbed.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return service{name: name, port: ports[0], versions: versions}
}

func (s service) host() string { return s.name + ".shop.svc.cluster.local" }

// version returns the service with one of its versions only.
func (s service) version(n int) service {
	s.versions = s.versions[n-1 : n]
	return s
}

// entry is the service's document.
func (s service) entry() string {
	protocol := cmp.Or(s.protocol, "HTTP")
	var endpoints strings.Builder
	for i, v := range s.versions {
		address := "127.0.0.1"
		if s.sidecars != nil {
			address = s.sidecars[i]
		}
		fmt.Fprintf(&endpoints, "  - {address: %s, ports: {main: %d}, labels: {version: v%d}}\n", address, v.Port, i+1)
	}
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: shop}
spec:
  hosts: [%s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, name: main, protocol: %s}]
  endpoints:
%s`, s.name, s.host(), s.port, protocol, endpoints.String())
}

// subsets is a DestinationRule with a subset per version.
func (s service) subsets() string {
	var subsets strings.Builder
	for i := range s.versions {
		fmt.Fprintf(&subsets, "  - {name: v%d, labels: {version: v%d}}\n", i+1, i+1)
	}
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %s, namespace: shop}
spec:
  host: %s
  subsets:
%s`, s.name, s.host(), subsets.String())
}

// routes is a VirtualService with the given YAML for its list http.
func (s service) routes(http string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %s, namespace: shop}
spec:
  hosts: [%s]
  http:
%s`, s.name, s.host(), http)
}

// weights is a VirtualService that splits the service's requests over v1, v2, ...
func (s service) weights(weights ...int) string {
	var route strings.Builder
	route.WriteString("  - route:\n")
	for i, w := range weights {
		fmt.Fprintf(&route, "    - {destination: {host: %s, subset: v%d}, weight: %d}\n", s.host(), i+1, w)
	}
	return s.routes(route.String())
}

// variants runs a test with an Envoy that speaks delta and with one that speaks State-of-the-World.
func variants(t *testing.T, test func(t *testing.T, node testbed.Node)) {
	for _, form := range []testbed.Node{{}, {Metadata: map[string]any{"VHDS": "false"}}, {SotW: true}} {
		node := form
		node.Name, node.Namespace = "client", "shop"
		t.Run(node.Variant(), func(t *testing.T) { test(t, node) })
	}
}
