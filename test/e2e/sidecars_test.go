package e2e

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/kit/echo"
	"github.com/pilotmesh/pilot/test/testbed"
)

// mesh is a client and two versions of a service, each of the three beside a sidecar of its own: a real Envoy under
// pilot-agent. A request goes through two of them.
type mesh struct {
	*bed
	reviews service
	v1, v2  *testbed.Backend
	agents  []*testbed.Agent
}

// versionsAlone keeps the sidecars of the versions from listening for outbound calls, or they would share the client's ports.
const versionsAlone = `---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: client, namespace: shop}
spec: {workloadSelector: {labels: {app: client}}, egress: [{hosts: ["./*"]}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: shop}
spec: {egress: [{hosts: ["~/*"]}]}
`

// newMesh starts a mesh. The test writes routes.yaml.
func newMesh(t *testing.T, sotw bool) *mesh {
	t.Helper()
	m := &mesh{v1: backend(t, "v1"), v2: backend(t, "v2")}
	m.reviews = newService(t, "reviews", m.v1, m.v2)
	m.reviews.sidecars = []string{"127.1.0.2", "127.1.0.3"}
	m.bed = newBed(t, "services.yaml", m.reviews.entry()+m.reviews.subsets()+versionsAlone)
	for i, name := range []string{"client", "reviews-v1", "reviews-v2"} {
		m.agent(testbed.Node{Name: name, Namespace: "shop", IP: fmt.Sprintf("127.1.0.%d", i+1), SotW: sotw})
	}
	for _, a := range m.agents {
		if err := a.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// agent starts an agent whose Envoy must not reject anything.
func (m *mesh) agent(node testbed.Node) {
	m.Helper()
	node.Discovery = m.GRPC
	a, err := testbed.StartAgent(testbed.AgentOptions{Binary: agentBinary, Envoy: envoyBinary, Args: []string{"--terminationDrainDuration=0s"}}, m.TempDir(), node)
	if err != nil {
		m.Fatal(err)
	}
	m.agents = append(m.agents, a)
	m.Cleanup(a.Stop)
	m.Cleanup(func() { m.sound(a.Envoy) })
}

// route makes a VirtualService of the list http, and waits until the client's sidecar goes by it: it acknowledges before its worker has the route, so
// one more rule shows that.
func (m *mesh) route(http string) {
	m.Helper()
	marker := fmt.Sprintf("/marker-%d", time.Now().UnixNano())
	http = "  - match: [{uri: {exact: " + marker + "}}]\n    directResponse: {status: 204}\n" + strings.TrimPrefix(http, "\n")
	m.write("routes.yaml", m.reviews.routes(strings.ReplaceAll(http, "REVIEWS", m.reviews.host())))
	m.await("the new rules to be in force", func(context.Context) error {
		_, err := m.get(marker)
		if testbed.Status(err) == 204 {
			return nil
		}
		return fmt.Errorf("not yet: %w", err)
	})
}

// settle waits until every proxy has the changes written since begin.
func (m *mesh) settle(begin time.Time) {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), patience)
	defer cancel()
	if _, err := m.AwaitSettled(ctx, begin); err != nil {
		m.Fatal(err)
	}
}

// get asks the client's sidecar once.
func (m *mesh) get(path string, headers ...string) (echo.Report, error) {
	return testbed.Call(m.Context(), m.client, m.reviews.port, m.reviews.host(), path, headers...)
}

// by wants a request to be answered by one of the versions.
func (m *mesh) by(version, path string, headers ...string) echo.Report {
	m.Helper()
	a, err := m.get(path, headers...)
	if err != nil || a.Name != version {
		m.Errorf("%s %q is answered by %q, %v; want %s", path, headers, a.Name, err, version)
	}
	return a
}

// status wants a request to be answered with a status.
func (m *mesh) status(code int, path string, headers ...string) {
	m.Helper()
	if _, err := m.get(path, headers...); testbed.Status(err) != code {
		m.Errorf("%s %q: %v, want status %d", path, headers, err, code)
	}
}

// about wants n of all to be a share, within five standard deviations of what chance allows.
func (m *mesh) about(what string, n, all int, share float64) {
	m.Helper()
	if math.Abs(float64(n)-share*float64(all)) > 5*math.Sqrt(share*(1-share)*float64(all)) {
		m.Errorf("%s: %d of %d, want a share of %.2f", what, n, all, share)
	}
}

// TestRoutes: requests between sidecars go, and become, what the rules say.
func TestRoutes(t *testing.T) {
	variants(t, func(t *testing.T, node testbed.Node) {
		m := newMesh(t, node.SotW)
		for _, c := range []struct {
			name string
			test func(m *mesh)
		}{
			{"match", (*mesh).match}, {"weights", (*mesh).weights}, {"rewrite", (*mesh).rewrite}, {"redirect", (*mesh).redirect},
			{"headers", (*mesh).headers}, {"abort", (*mesh).abort}, {"delay", (*mesh).delay}, {"retry", (*mesh).retry}, {"mirror", (*mesh).mirror},
			{"tcp", (*mesh).tcp}, {"tls", (*mesh).tls},
		} {
			t.Run(c.name, func(t *testing.T) {
				own, inner := *m, *m.bed
				inner.T, own.bed = t, &inner
				c.test(&own)
			})
		}
	})
}

func (m *mesh) match() {
	m.route(`
  - match: [{headers: {end-user: {exact: alma}}}, {uri: {prefix: /beta/}}, {method: {exact: GET}, queryParams: {beta: {exact: "1"}}}]
    route: [{destination: {host: REVIEWS, subset: v2}}]
  - route: [{destination: {host: REVIEWS, subset: v1}}]
`)
	m.by("v1", "/")
	m.by("v2", "/", "end-user", "alma")
	m.by("v1", "/", "end-user", "almas")
	m.by("v2", "/beta/x")
	m.by("v1", "/beta")
	m.by("v2", "/x?beta=1")
	m.by("v1", "/x?beta=2")
}

func (m *mesh) weights() {
	m.route(`
  - route:
    - {destination: {host: REVIEWS, subset: v1}, weight: 80}
    - {destination: {host: REVIEWS, subset: v2}, weight: 20}
`)
	const n = 500
	second := 0
	for range n {
		a, err := m.get("/")
		if err != nil {
			m.Fatal(err)
		}
		if a.Name == "v2" {
			second++
		}
	}
	m.about("answers by v2", second, n, 0.2)
}

func (m *mesh) rewrite() {
	m.route(`
  - match: [{uri: {prefix: /old/}}]
    rewrite: {uri: /new/, authority: elsewhere.example}
    route: [{destination: {host: REVIEWS, subset: v2}}]
  - match: [{uri: {regex: "/v[0-9]+/.*"}}]
    rewrite: {uriRegexRewrite: {match: "/v([0-9]+)/(.*)", rewrite: '/\2/of/\1'}}
    route: [{destination: {host: REVIEWS, subset: v1}}]
  - route: [{destination: {host: REVIEWS, subset: v1}}]
`)
	if a := m.by("v2", "/old/x"); a.Path != "/new/x" || a.Host != "elsewhere.example" {
		m.Errorf("rewritten to %s %s", a.Host, a.Path)
	}
	if a := m.by("v1", "/v7/books"); a.Path != "/books/of/7" {
		m.Errorf("rewritten to %s", a.Path)
	}
	if a := m.by("v1", "/other"); a.Path != "/other" || a.Host != m.reviews.host() {
		m.Errorf("rewritten to %s %s", a.Host, a.Path)
	}
}

func (m *mesh) redirect() {
	m.route(`
  - match: [{uri: {prefix: /moved}}]
    redirect: {uri: /there, authority: elsewhere.example, redirectCode: 308}
  - match: [{uri: {exact: /gone}}]
    directResponse: {status: 410, body: {string: "for good"}}
  - route: [{destination: {host: REVIEWS, subset: v1}}]
`)
	req, err := http.NewRequestWithContext(m.Context(), http.MethodGet, "http://"+testbed.Loopback(m.reviews.port)+"/moved", http.NoBody)
	if err != nil {
		m.Fatal(err)
	}
	req.Host = m.reviews.host()
	resp, err := m.client.Do(req)
	if err != nil {
		m.Fatal(err)
	}
	defer resp.Body.Close()
	if to := resp.Header.Get("location"); resp.StatusCode != http.StatusPermanentRedirect || to != "http://elsewhere.example/there" {
		m.Errorf("redirected with %s to %q", resp.Status, to)
	}
	if _, err := m.get("/gone"); testbed.Status(err) != http.StatusGone || !strings.Contains(err.Error(), "for good") {
		m.Errorf("/gone: %v", err)
	}
	m.by("v1", "/")
}

func (m *mesh) headers() {
	m.route(`
  - headers: {request: {set: {x-shop: corner}, remove: [x-secret]}}
    route: [{destination: {host: REVIEWS, subset: v1}, headers: {request: {add: {x-version: one}}}}]
`)
	a := m.by("v1", "/", "x-secret", "s", "x-shop", "mine")
	if got := a.Headers; got.Get("x-shop") != "corner" || got.Get("x-version") != "one" || got.Get("x-secret") != "" {
		m.Errorf("headers are %v", got)
	}
}

func (m *mesh) abort() {
	m.route(`
  - match: [{uri: {exact: /always}}]
    fault: {abort: {percentage: {value: 100}, httpStatus: 418}}
    route: [{destination: {host: REVIEWS, subset: v1}}]
  - fault: {abort: {percentage: {value: 25}, httpStatus: 503}}
    route: [{destination: {host: REVIEWS, subset: v1}}]
`)
	m.status(http.StatusTeapot, "/always")
	const n = 400
	aborted := 0
	for range n {
		switch _, err := m.get("/"); testbed.Status(err) {
		case http.StatusOK:
		case http.StatusServiceUnavailable:
			aborted++
		default:
			m.Fatal(err)
		}
	}
	m.about("aborted requests", aborted, n, 0.25)
}

func (m *mesh) delay() {
	// Envoy counts a delay from the time its event loop last looked at the clock, so it may end some milliseconds early.
	const delay, early = 300 * time.Millisecond, 50 * time.Millisecond
	m.route(`
  - match: [{headers: {slow: {exact: "yes"}}}]
    fault: {delay: {percentage: {value: 100}, fixedDelay: 0.3s}}
    route: [{destination: {host: REVIEWS, subset: v2}}]
  - route: [{destination: {host: REVIEWS, subset: v1}}]
`)
	began := time.Now()
	m.by("v2", "/", "slow", "yes")
	if took := time.Since(began); took < delay-early {
		m.Errorf("it took %s, want about %s", took, delay)
	}
	m.by("v1", "/")
}

func (m *mesh) retry() {
	m.route(`
  - match: [{uri: {prefix: /again}}]
    retries: {attempts: 3, perTryTimeout: 5s, retryOn: 5xx}
    route: [{destination: {host: REVIEWS, subset: v1}}]
  - retries: {attempts: 0}
    route: [{destination: {host: REVIEWS, subset: v1}}]
`)
	before := m.v1.Requests()
	m.v1.Fail(2)
	m.by("v1", "/again")
	if n := m.v1.Requests() - before; n != 3 {
		m.Errorf("v1 got %d requests, want one and two retries", n)
	}
	before = m.v1.Requests()
	m.v1.Fail(1)
	m.status(http.StatusServiceUnavailable, "/")
	if n := m.v1.Requests() - before; n != 1 {
		m.Errorf("v1 got %d requests without retries, want 1", n)
	}
	m.by("v1", "/")
}

func (m *mesh) mirror() {
	m.route(`
  - route: [{destination: {host: REVIEWS, subset: v1}}]
    mirror: {host: REVIEWS, subset: v2}
    mirrorPercentage: {value: 100}
`)
	before := m.v2.Requests()
	const n = 20
	for range n {
		m.by("v1", "/")
	}
	m.await("v2 to get a copy of each request", func(context.Context) error {
		if got := m.v2.Requests() - before; got != n {
			return fmt.Errorf("it got %d of %d", got, n)
		}
		return nil
	})
}

// TestMeshUnderLoad: rules, policies and services change under load, and the control plane is killed and comes back; no
// request fails.
func TestMeshUnderLoad(t *testing.T) {
	variants(t, func(t *testing.T, node testbed.Node) {
		m := newMesh(t, node.SotW)
		ratings := newService(t, "ratings", m.v2)
		m.route("  - route: [{destination: {host: REVIEWS, subset: v1}}]\n")
		load := m.load(m.reviews)
		m.loaded(load, "v1")
		for i, rules := range []string{`
  - route: [{destination: {host: REVIEWS, subset: v2}}]
`, `
  - match: [{headers: {end-user: {exact: alma}}}]
    route: [{destination: {host: REVIEWS, subset: v2}}]
  - route: [{destination: {host: REVIEWS, subset: v1}}]
`, `
  - rewrite: {uri: /other}
    retries: {attempts: 2, retryOn: 5xx}
    timeout: 20s
    route: [{destination: {host: REVIEWS, subset: v2}}]
`, `
  - mirror: {host: REVIEWS, subset: v2}
    route: [{destination: {host: REVIEWS, subset: v1}}]
`} {
			version := []string{"v2", "v1"}[i%2]
			m.route(rules)
			m.loaded(load, version)

			policy := strings.Replace(m.reviews.subsets(), "  subsets:", "  trafficPolicy: {loadBalancer: {simple: RANDOM}, connectionPool: {tcp: {maxConnections: 1000}}}\n  subsets:", 1)
			m.settle(m.write("services.yaml", m.reviews.entry()+policy+versionsAlone))
			m.write("ratings.yaml", ratings.entry())
			m.loaded(load, version)

			m.Kill()
			m.loaded(load, version)
			m.write("services.yaml", m.reviews.entry()+m.reviews.subsets()+versionsAlone)
			m.start()
			for _, a := range m.agents {
				m.await(a.Node.Name+" to come back", a.Connected)
			}
			m.remove("ratings.yaml")
			m.loaded(load, version)
		}
		m.clean(load)
	})
}
