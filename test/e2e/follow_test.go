package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestFollowFiles: requests follow the files, whatever kind of edit it is.
func TestFollowFiles(t *testing.T) {
	variants(t, func(t *testing.T, node testbed.Node) {
		v1, v2 := backend(t, "v1"), backend(t, "v2")
		reviews := newService(t, "reviews", v1, v2)
		b := newBed(t, "services.yaml", reviews.entry()+reviews.subsets(), "routes.yaml", reviews.weights(100, 0))
		b.envoy(node)
		b.answers(reviews, "v1", "/")

		// A weight.
		b.write("routes.yaml", reviews.weights(0, 100))
		b.answers(reviews, "v2", "/")

		// A match on a header and one on a path, before the rest.
		b.write("routes.yaml", reviews.routes(fmt.Sprintf(`
  - match: [{headers: {end-user: {exact: jason}}}, {uri: {prefix: /beta/}}]
    route: [{destination: {host: %[1]s, subset: v2}}]
  - route: [{destination: {host: %[1]s, subset: v1}}]
`, reviews.host())))
		b.answers(reviews, "v1", "/")
		b.answers(reviews, "v2", "/", "end-user", "jason")
		b.answers(reviews, "v2", "/beta/x")
		b.answers(reviews, "v1", "/", "end-user", "jasonb")

		// Without a VirtualService any endpoint may answer; without v2 only v1.
		b.remove("routes.yaml")
		b.write("services.yaml", reviews.version(1).entry())
		for range 5 {
			b.answers(reviews, "v1", "/")
		}

		// A new service, and a deleted one.
		ratings := newService(t, "ratings", backend(t, "ratings"))
		b.write("ratings.yaml", ratings.entry())
		b.answers(ratings, "ratings", "/")
		b.remove("ratings.yaml")
		b.unanswered(ratings)
		b.answers(reviews, "v1", "/")
	})
}

// TestWeights: a split is a split, within what chance allows.
func TestWeights(t *testing.T) {
	v1, v2 := backend(t, "v1"), backend(t, "v2")
	reviews := newService(t, "reviews", v1, v2)
	b := newBed(t, "all.yaml", reviews.entry()+reviews.subsets()+reviews.weights(75, 25))
	b.envoy(testbed.Node{Name: "client", Namespace: "shop"})
	b.answers(reviews, "v1", "/")
	const n = 1000
	count := map[string]int{}
	for range n {
		a, err := testbed.Call(t.Context(), b.client, reviews.port, reviews.host(), "/")
		if err != nil {
			t.Fatal(err)
		}
		count[a.Name]++
	}
	// Five standard deviations of a binomial distribution: sqrt(1000 * 0.75 * 0.25) = 13.7.
	if got := count["v2"]; got < 250-69 || got > 250+69 || count["v1"]+got != n {
		t.Errorf("answers %v of %d, want about a quarter from v2", count, n)
	}
}

// TestTCP: a service that is no HTTP is connected through.
func TestTCP(t *testing.T) {
	variants(t, func(t *testing.T, node testbed.Node) {
		db, err := testbed.StartTCP("db")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		store := newService(t, "store", db)
		store.protocol = "TCP"
		b := newBed(t, "store.yaml", store.entry())
		b.envoy(node)
		b.await("the database to greet", func(ctx context.Context) error {
			greeting, err := testbed.Greeting(ctx, store.port, "")
			if err == nil && greeting != "db" {
				err = fmt.Errorf("greeted with %q", greeting)
			}
			return err
		})
	})
}

// TestWorkloadEntries: endpoints that a selector finds come and go with their own files.
func TestWorkloadEntries(t *testing.T) {
	variants(t, func(t *testing.T, node testbed.Node) {
		v1, v2 := backend(t, "v1"), backend(t, "v2")
		reviews := newService(t, "reviews")
		b := newBed(t, "service.yaml", fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [%s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, name: main, protocol: HTTP}]
  workloadSelector: {labels: {app: reviews}}
`, reviews.host(), reviews.port), "v1.yaml", workload("v1", v1.Port))
		e := b.envoy(node)
		b.answers(reviews, "v1", "/")
		b.write("v2.yaml", workload("v2", v2.Port))
		b.remove("v1.yaml")
		b.answers(reviews, "v2", "/")
		b.remove("v2.yaml")
		b.await("an answer of 503 by a service without endpoints", func(ctx context.Context) error {
			_, err := testbed.Call(ctx, b.client, reviews.port, reviews.host(), "/")
			if testbed.Status(err) != http.StatusServiceUnavailable {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
		if names, err := e.Clusters(t.Context()); err != nil || !slices.Contains(names, fmt.Sprintf("outbound|%d||%s", reviews.port, reviews.host())) {
			t.Errorf("clusters %q, %v: the service is gone with its endpoints", names, err)
		}
	})
}

func workload(name string, port int) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: %s, namespace: shop, labels: {app: reviews, version: %[1]s}}
spec: {address: 127.0.0.1, ports: {main: %d}, labels: {app: reviews, version: %[1]s}}
`, name, port)
}

// TestSidecarScope: a Sidecar decides which services a proxy gets, and only for its namespace.
func TestSidecarScope(t *testing.T) {
	variants(t, func(t *testing.T, node testbed.Node) {
		reviews, ratings := newService(t, "reviews", backend(t, "reviews")), newService(t, "ratings", backend(t, "ratings"))
		b := newBed(t, "services.yaml", reviews.entry()+ratings.entry())
		e := b.envoy(node)
		b.answers(reviews, "reviews", "/")
		b.answers(ratings, "ratings", "/")
		b.write("sidecar.yaml", fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: shop}
spec: {egress: [{hosts: ["./%s"]}]}
`, reviews.host()))
		gone := fmt.Sprintf("outbound|%d||%s", ratings.port, ratings.host())
		b.await("ratings to be out of scope", func(ctx context.Context) error {
			names, err := e.Clusters(ctx)
			if err == nil && slices.Contains(names, gone) {
				err = fmt.Errorf("clusters are %q", names)
			}
			return err
		})
		b.unanswered(ratings)
		b.answers(reviews, "reviews", "/")
		b.remove("sidecar.yaml")
		b.answers(ratings, "ratings", "/")
	})
}

// TestBrokenFile: a broken file is left out, its last good content keeps serving, and all other files are followed.
func TestBrokenFile(t *testing.T) {
	reviews, ratings := newService(t, "reviews", backend(t, "v1"), backend(t, "v2")), newService(t, "ratings", backend(t, "ratings"))
	b := newBed(t, "reviews.yaml", reviews.entry()+reviews.subsets(), "routes.yaml", reviews.weights(0, 100))
	b.envoy(testbed.Node{Name: "client", Namespace: "shop"})
	b.answers(reviews, "v2", "/")
	for name, text := range map[string]string{
		"no YAML":          "spec: [}",
		"an unknown field": "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: reviews, namespace: shop}\nspec: {hostz: [a]}\n",
		"a wrong type":     "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: reviews, namespace: shop}\nspec: {hosts: 7}\n",
		"a bad expression": reviews.routes("  - match: [{uri: {regex: '['}}]\n    route: [{destination: {host: " + reviews.host() + ", subset: v1}}]\n"),
	} {
		t.Logf("a file with %s", name)
		b.write("routes.yaml", text)
		b.write("ratings.yaml", ratings.entry())
		b.answers(ratings, "ratings", "/") // so the batch with the broken file is through
		if page, err := b.Get(t.Context(), "/debug/problemz"); err != nil || !strings.Contains(page, "routes.yaml") {
			t.Errorf("no problem names the file: %s (%v)", page, err)
		}
		for range 5 {
			b.answers(reviews, "v2", "/")
		}
		b.remove("ratings.yaml")
		b.unanswered(ratings)
	}
	b.write("routes.yaml", reviews.weights(100, 0))
	b.answers(reviews, "v1", "/")
	if page, err := b.Get(t.Context(), "/debug/problemz"); err != nil || strings.Contains(page, "routes.yaml") {
		t.Errorf("a problem stays when the file is well again: %s (%v)", page, err)
	}
}

// TestInbound: what a sidecar's own workload serves is reached through it. The service's endpoint is the address of the
// second Envoy; behind that Envoy the workload listens on 127.0.0.1.
func TestInbound(t *testing.T) {
	variants(t, func(t *testing.T, node testbed.Node) {
		app := backend(t, "app")
		reviews := newService(t, "reviews", app)
		reviews.sidecars = []string{"127.1.0.2"}
		b := newBed(t, "reviews.yaml", reviews.entry())
		b.envoy(node)
		node.Name, node.IP = "reviews", reviews.sidecars[0]
		own := b.envoy(node)
		b.answers(reviews, "app", "/")
		passed := fmt.Sprintf(`^cluster\.inbound\|%d\|\|;?\.upstream_rq_total$`, app.Port)
		if n, err := own.Sum(t.Context(), passed); err != nil || n == 0 {
			t.Errorf("%d requests came through the service's own Envoy (%v)", n, err)
		}
	})
}
