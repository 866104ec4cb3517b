package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// onDemand is a sidecar that asks for the hosts that its workload uses.
func onDemand() testbed.Node {
	return testbed.Node{Name: "client", Namespace: "shop", Metadata: map[string]any{"ON_DEMAND_HOSTS": "true"}}
}

// post sends one request with a body and returns its status.
func (b *bed) post(s service, host string) int {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://"+testbed.Loopback(s.port)+"/", bytes.NewReader(bytes.Repeat([]byte("x"), 100_000)))
	if err != nil {
		b.Fatal(err)
	}
	r.Host = host
	answer, err := b.client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// calls sends one request, the first one for its host, and fails the test unless the backend answers it.
func (b *bed) calls(s service, host, backend string) {
	b.Helper()
	a, err := testbed.Call(b.Context(), b.client, s.port, host, "/")
	if err != nil || a.Name != backend {
		b.Errorf("the first request for %s: answered by %q, %v; want %s", host, a.Name, err, backend)
	}
}

// unknown sends one request for a host that is not declared and fails the test unless it has the status.
func (b *bed) unknown(s service, host string, status int) {
	b.Helper()
	if _, err := testbed.Call(b.Context(), b.client, s.port, host, "/"); testbed.Status(err) != status {
		b.Errorf("a request for %s: %v; want status %d", host, err, status)
	}
}

// TestHostsOnDemand: a sidecar with hosts on demand has no host at first. The first request for each name of a host is answered as if it had all, with
// and without a body; edits, new services and removed ones take effect; the names and clusters it has stay over a restart of the control plane. All
// of it holds for an Envoy under pilot-agent, too.
func TestHostsOnDemand(t *testing.T) {
	t.Run("envoy", func(t *testing.T) {
		usesHosts(t, func(b *bed) *testbed.Envoy { return b.envoy(onDemand()) })
	})
	t.Run("agent", func(t *testing.T) {
		usesHosts(t, func(b *bed) *testbed.Envoy {
			node := onDemand()
			node.Discovery = b.GRPC
			a, err := testbed.StartAgent(testbed.AgentOptions{Binary: agentBinary, Envoy: envoyBinary, Args: []string{"--terminationDrainDuration=0s"}}, b.TempDir(), node)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(a.Stop)
			b.Cleanup(func() { b.sound(a.Envoy) })
			if err := a.AwaitReady(b.Context()); err != nil {
				b.Fatal(err)
			}
			return a.Envoy
		})
	})
}

// usesHosts uses the hosts of a mesh through an Envoy with hosts on demand.
func usesHosts(t *testing.T, start func(*bed) *testbed.Envoy) {
	reviews, ratings := newService(t, "reviews", backend(t, "v1"), backend(t, "v2")), newService(t, "ratings", backend(t, "r1"))
	details, late := newService(t, "details", backend(t, "d1")), newService(t, "late", backend(t, "l1"))
	ratings.port, details.port, late.port = reviews.port, reviews.port, reviews.port
	b := newBed(t, "reviews.yaml", reviews.entry()+reviews.subsets(), "routes.yaml", reviews.weights(100, 0), "ratings.yaml", ratings.entry(), "details.yaml", details.entry())
	e := start(b)
	b.has(e, 0, "outbound|")
	b.calls(reviews, reviews.host(), "v1")
	b.has(e, 1, "outbound|")
	b.calls(ratings, "ratings", "r1")
	b.calls(ratings, fmt.Sprintf("ratings.shop:%d", ratings.port), "r1")
	if status := b.post(details, "details.shop.svc"); status != http.StatusOK {
		t.Errorf("the first request for details, with a body: status %d", status)
	}
	b.unknown(reviews, "nothing.example.com", http.StatusServiceUnavailable) // passed on, to no address: nothing is captured here
	b.unknown(late, late.host(), http.StatusServiceUnavailable)

	b.write("routes.yaml", reviews.weights(0, 100))
	b.answers(reviews, "v2", "/")
	b.write("late.yaml", late.entry())
	b.answers(late, "l1", "/")
	b.calls(late, "late.shop", "l1")
	b.remove("ratings.yaml")
	b.await("ratings to be gone", func(ctx context.Context) error {
		if _, err := testbed.Call(ctx, b.client, ratings.port, "ratings", "/"); testbed.Status(err) != http.StatusServiceUnavailable {
			return fmt.Errorf("ratings: %w", err)
		}
		return nil
	})
	b.Discovery.Stop()
	b.start()
	b.await("the Envoy to be connected", e.Connected)
	b.write("routes.yaml", reviews.weights(100, 0))
	b.answers(reviews, "v1", "/")
	b.calls(details, "details", "d1")
	b.has(e, 4, "outbound|") // of reviews both versions, details, and late
	b.write("routes.yaml", reviews.routes(fmt.Sprintf(`
  - route: [{destination: {host: %s, subset: v1}}]
    mirror: {host: %s}
`, reviews.host(), late.host())))
	mirrored := late.versions[0].Requests()
	b.await("a request to be mirrored", func(ctx context.Context) error {
		if _, err := testbed.Call(ctx, b.client, reviews.port, reviews.host(), "/"); err != nil {
			return err
		}
		if late.versions[0].Requests() == mirrored {
			return fmt.Errorf("%d requests have come", mirrored)
		}
		return nil
	})
	b.inStep()
}

// inStep waits until the control plane says that the only proxy has all that it should have, and that nothing is wrong.
func (b *bed) inStep() {
	b.Helper()
	b.await("the proxy to be in step", func(ctx context.Context) error {
		page, err := b.Get(ctx, "/debug/syncz")
		if err == nil && (!strings.Contains(page, `"VHDS"`) || strings.Contains(page, `"STALE"`) || strings.Contains(page, `"NOT SENT"`) || strings.Contains(page, `"REJECTED"`)) {
			err = fmt.Errorf("the proxy is not in step: %s", page)
		}
		return err
	})
	if list, err := b.Problems(b.Context()); err != nil || len(list) > 0 {
		b.Errorf("problems: %v, %v", list, err)
	}
}

// TestUnknownHostsOnDemand: hosts that are not declared are refused if the outbound traffic policy says so, and become known when they are declared.
func TestUnknownHostsOnDemand(t *testing.T) {
	reviews, late := newService(t, "reviews", backend(t, "v1")), newService(t, "late", backend(t, "l1"))
	late.port = reviews.port
	b := newBed(t, "reviews.yaml", reviews.entry(), "sidecar.yaml", `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: shop}
spec: {outboundTrafficPolicy: {mode: REGISTRY_ONLY}}
`)
	b.envoy(onDemand())
	b.calls(reviews, "reviews.shop", "v1")
	b.unknown(reviews, "nothing.example.com", http.StatusBadGateway)
	b.unknown(late, late.host(), http.StatusBadGateway)
	b.write("late.yaml", late.entry())
	b.answers(late, "l1", "/")
}

// has waits until an Envoy has a number of clusters whose names have a prefix.
func (b *bed) has(e *testbed.Envoy, n int, prefix string) {
	b.Helper()
	b.await(fmt.Sprintf("%d clusters %s", n, prefix), func(ctx context.Context) error {
		all, err := e.Clusters(ctx)
		found := 0
		for _, name := range all {
			if strings.HasPrefix(name, prefix) {
				found++
			}
		}
		if err == nil && (found != n || len(all) == 0) {
			return fmt.Errorf("the clusters are %v", all)
		}
		return err
	})
}
