package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestPoisonedRoute: an Envoy refuses one virtual host. It is held back at what that Envoy last took, only there, and
// everything else keeps flowing, in the same route configuration too.
//
// The poison is an expression that is larger than this Envoy allows, and fine for all others.
func TestPoisonedRoute(t *testing.T) {
	variants(t, func(t *testing.T, node testbed.Node) {
		reviews := newService(t, "reviews", backend(t, "v1"), backend(t, "v2"))
		ratings := newService(t, "ratings", backend(t, "r1"), backend(t, "r2"))
		ratings.port = reviews.port // one route configuration holds both
		services := reviews.entry() + reviews.subsets() + ratings.entry() + ratings.subsets()
		b := newBed(t, "services.yaml", services, "reviews.yaml", reviews.weights(100, 0), "ratings.yaml", ratings.weights(100, 0))
		node.MaxRegex = 100
		e := b.suspiciousEnvoy(node)
		b.answers(reviews, "v1", "/")
		b.answers(ratings, "r1", "/")

		b.write("reviews.yaml", reviews.routes(fmt.Sprintf(`
  - match: [{uri: {regex: "/[a-z]{200}"}}]
    route: [{destination: {host: %[1]s, subset: v1}}]
  - route: [{destination: {host: %[1]s, subset: v2}}]
`, reviews.host())))
		rejected := b.rejection(e)

		// The neighbour in the same route configuration follows its edits; the poisoned one stays as it was.
		for i, weights := range [][]int{{0, 100}, {100, 0}, {0, 100}} {
			b.write("ratings.yaml", ratings.weights(weights...))
			b.answers(ratings, []string{"r2", "r1", "r2"}[i], "/")
			b.answers(reviews, "v1", "/")
		}
		b.unchanged(e, rejected)

		// An antidote is taken.
		b.write("reviews.yaml", reviews.weights(0, 100))
		b.answers(reviews, "v2", "/")
		b.unchanged(e, rejected)
	})
}

// TestPoisonedRouteElsewhere: what one Envoy refuses, others take.
func TestPoisonedRouteElsewhere(t *testing.T) {
	reviews := newService(t, "reviews", backend(t, "v1"), backend(t, "v2"))
	b := newBed(t, "services.yaml", reviews.entry()+reviews.subsets(), "reviews.yaml", reviews.weights(100, 0))
	healthy := b.envoy(testbed.Node{Name: "healthy", Namespace: "shop"})
	b.answers(reviews, "v1", "/")
	// The same class as the healthy one. Both bind the same port, and the kernel shares connections between them: so
	// only the refusing one's state is looked at from here on.
	poisoned := b.suspiciousEnvoy(testbed.Node{Name: "poisoned", Namespace: "shop", IP: "127.1.0.2", MaxRegex: 100})
	b.write("reviews.yaml", reviews.routes(fmt.Sprintf(`
  - match: [{uri: {regex: "/[a-z]{200}"}}]
    route: [{destination: {host: %[1]s, subset: v2}}]
  - route: [{destination: {host: %[1]s, subset: v1}}]
`, reviews.host())))
	rejected := b.rejection(poisoned)
	poisoned.Stop()
	b.await("the healthy Envoy to have the new route", func(ctx context.Context) error {
		_, err := testbed.Call(ctx, b.client, reviews.port, reviews.host(), "/")
		if err != nil {
			return err
		}
		a, err := testbed.Call(ctx, b.client, reviews.port, reviews.host(), "/"+strings.Repeat("a", 200))
		if err == nil && a.Name != "v2" {
			err = fmt.Errorf("answered by %s", a.Name)
		}
		return err
	})
	if rejected == 0 {
		t.Error("nothing was rejected")
	}
	if err := healthy.Rejected(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPoisonedListener: an Envoy cannot bind one listener, because something else on its machine has the port. All
// other services come and go.
func TestPoisonedListener(t *testing.T) {
	variants(t, func(t *testing.T, node testbed.Node) {
		reviews, ratings := newService(t, "reviews", backend(t, "reviews")), newService(t, "ratings", backend(t, "ratings"))
		b := newBed(t, "reviews.yaml", reviews.entry())
		e := b.suspiciousEnvoy(node)
		b.answers(reviews, "reviews", "/")

		taken, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = taken.Close() })
		stuck := newService(t, "stuck", backend(t, "stuck"))
		stuck.port = taken.Addr().(*net.TCPAddr).Port
		b.write("stuck.yaml", stuck.entry())
		rejected := b.rejection(e)

		b.write("ratings.yaml", ratings.entry())
		b.answers(ratings, "ratings", "/")
		b.remove("ratings.yaml")
		b.unanswered(ratings)
		b.answers(reviews, "reviews", "/")
		b.unchanged(e, rejected)

		// The user gives up on it: nothing is left of the affair.
		b.remove("stuck.yaml")
		b.write("ratings.yaml", ratings.entry())
		b.answers(ratings, "ratings", "/")
		b.unchanged(e, rejected)
	})
}

const rejections = `\.update_rejected$`

// rejection waits until the Envoy has rejected something, and returns how often it has.
func (b *bed) rejection(e *testbed.Envoy) int64 {
	b.Helper()
	var n int64
	b.await("the Envoy to reject the poison", func(ctx context.Context) error {
		var err error
		if n, err = e.Sum(ctx, rejections); err == nil && n == 0 {
			err = errors.New("nothing rejected yet")
		}
		return err
	})
	return n
}

// unchanged fails the test if the Envoy was offered the poison again. The moment it is asked counts: every caller has
// seen a later change arrive, so a repetition would have been before it.
func (b *bed) unchanged(e *testbed.Envoy, rejected int64) {
	b.Helper()
	if n, err := e.Sum(b.Context(), rejections); err != nil || n != rejected {
		b.Errorf("the Envoy has rejected %d updates (%v), want %d: what it refuses was sent again", n, err, rejected)
	}
}
