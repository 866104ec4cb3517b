package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// enough is how many answers of the new state count as the load having seen it.
const enough = 20

// loaded waits until the load has had enough answers by the backend, and fails the test if any request failed.
func (b *bed) loaded(l *testbed.Load, backend string) {
	b.Helper()
	seen := 0
	b.await(fmt.Sprintf("%d answers by %s", enough, backend), func(context.Context) error {
		t := l.Take()
		if t.Failures > 0 {
			b.Fatalf("%d of %d requests failed, the first at %v", t.Failures, t.Total(), t.First)
		}
		if seen += t.Answers[backend]; seen < enough {
			return fmt.Errorf("got %d", seen)
		}
		return nil
	})
}

func (b *bed) load(s service) *testbed.Load {
	l := testbed.StartLoad(b.Context(), s.port, s.host(), 4, 100)
	b.Cleanup(func() { l.Stop() })
	return l
}

// clean ends the load and fails the test if any request failed.
func (b *bed) clean(l *testbed.Load) {
	b.Helper()
	if t := l.Stop(); t.Failures > 0 {
		b.Errorf("%d of %d requests failed, the first at %v", t.Failures, t.Total(), t.First)
	}
}

// TestRestartUnderLoad: the control plane is killed and comes back, on other files even; no client notices.
func TestRestartUnderLoad(t *testing.T) {
	variants(t, func(t *testing.T, node testbed.Node) {
		reviews := newService(t, "reviews", backend(t, "v1"), backend(t, "v2"))
		ratings := newService(t, "ratings", backend(t, "ratings"))
		b := newBed(t, "services.yaml", reviews.entry()+reviews.subsets()+ratings.entry(), "routes.yaml", reviews.weights(100, 0))
		e := b.envoy(node)
		b.answers(reviews, "v1", "/")
		load := b.load(reviews)
		b.loaded(load, "v1")

		// With the same files nothing is changed in the Envoy: it gets the same configuration.
		const changes = `^cluster_manager\.cluster_(modified|removed)$|^listener_manager\.listener_(modified|removed)$|\.rds\..*\.config_reload$`
		before, err := e.Sum(t.Context(), changes)
		if err != nil {
			t.Fatal(err)
		}
		b.Kill()
		b.loaded(load, "v1")
		b.start()
		b.await("Envoy to come back", e.Connected)
		b.loaded(load, "v1")
		if after, err := e.Sum(t.Context(), changes); err != nil || after != before {
			t.Errorf("a restart with the same files changed %d things in the Envoy (%v)", after-before, err)
		}

		// With files that changed while it was down the change arrives, the deletion too.
		b.Kill()
		b.write("services.yaml", reviews.entry()+reviews.subsets())
		b.write("routes.yaml", reviews.weights(0, 100))
		b.loaded(load, "v1")
		b.start()
		b.loaded(load, "v2")
		b.unanswered(ratings)

		// And it follows as before.
		b.write("routes.yaml", reviews.weights(100, 0))
		b.loaded(load, "v1")
		b.clean(load)
	})
}

// TestReplaceUnderLoad: in one edit a route moves to a service that is new in it and the old one goes, over and over.
// No request may meet a route whose cluster is not there yet, or no longer.
func TestReplaceUnderLoad(t *testing.T) {
	variants(t, func(t *testing.T, node testbed.Node) {
		front := newService(t, "front", backend(t, "front"))
		stages := []service{newService(t, "blue", backend(t, "blue")), newService(t, "green", backend(t, "green"))}
		stage := func(s service) string {
			return front.entry() + s.entry() + front.routes(fmt.Sprintf("  - route: [{destination: {host: %s}}]\n", s.host()))
		}
		b := newBed(t, "all.yaml", stage(stages[0]))
		b.envoy(node)
		b.answers(front, "blue", "/")
		load := b.load(front)
		for i := range 10 {
			s := stages[i%2]
			b.write("all.yaml", stage(s))
			b.loaded(load, s.name)
		}
		b.clean(load)
	})
}

// TestMoveEndpointsUnderLoad: the endpoints of a service are exchanged in one edit, over and over.
func TestMoveEndpointsUnderLoad(t *testing.T) {
	variants(t, func(t *testing.T, node testbed.Node) {
		reviews := newService(t, "reviews", backend(t, "v1"), backend(t, "v2"))
		b := newBed(t, "reviews.yaml", reviews.version(1).entry())
		b.envoy(node)
		b.answers(reviews, "v1", "/")
		load := b.load(reviews)
		for i := range 10 {
			b.write("reviews.yaml", reviews.version(1+i%2).entry())
			b.loaded(load, fmt.Sprintf("v%d", 1+i%2))
		}
		b.clean(load)
	})
}

// TestStoppedEnvoy: an Envoy that does not read holds up no other, and has the last state soon after it wakes.
func TestStoppedEnvoy(t *testing.T) {
	variants(t, func(t *testing.T, node testbed.Node) {
		reviews := newService(t, "reviews", backend(t, "v1"), backend(t, "v2"))
		b := newBed(t, "services.yaml", reviews.entry()+reviews.subsets(), "routes.yaml", reviews.weights(100, 0))
		awake := b.envoy(node)
		node.Name, node.IP = "asleep", "127.1.0.2"
		asleep := b.envoy(node)
		if err := asleep.Pause(); err != nil {
			t.Fatal(err)
		}
		resume := sync.OnceFunc(func() { _ = asleep.Resume() })
		t.Cleanup(resume)
		for i := range 20 {
			if took := b.edit([]*testbed.Envoy{awake}, reviews, 1+i); took > patience/10 {
				t.Errorf("edit %d took %s beside an Envoy that does not read", i, took)
			}
		}
		b.write("routes.yaml", reviews.weights(3, 97))
		resume()
		b.await("the woken Envoy to have the last weights", func(ctx context.Context) error {
			text, err := asleep.Route(ctx, strconv.Itoa(reviews.port))
			if err == nil && !strings.Contains(text, `"weight": 97`) {
				err = fmt.Errorf("its routes are %s", text)
			}
			return err
		})
	})
}
