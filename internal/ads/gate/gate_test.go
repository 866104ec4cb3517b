package gate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestGateLetsFewInAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(2, time.Hour)
		a, b := g.Enter(t.Context()), g.Enter(t.Context())
		in := make(chan *Pass)
		go func() { in <- g.Enter(t.Context()) }()
		synctest.Wait()
		select {
		case <-in:
			t.Fatal("a third one came in")
		default:
		}
		g.Leave(a)
		g.Leave(<-in)
		g.Leave(b)
		if len(g.inside)+len(g.waiting) > 0 || g.expiry != nil {
			t.Fatalf("left behind: %+v", g)
		}
	})
}

// TestGateReleasesStuckWriters checks that a place that is held for too long becomes free.
func TestGateReleasesStuckWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(1, 50*time.Millisecond)
		stuck := g.Enter(t.Context())
		began := time.Now()
		for range 3 {
			_ = g.Enter(t.Context()) // stuck, too
		}
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Fatalf("waited %v", took)
		}
		g.Leave(stuck)
	})
}

func TestGateForgetsWhoGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(1, time.Hour)
		a := g.Enter(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if p := g.Enter(ctx); p != nil {
			t.Fatal("came in")
		}
		g.Leave(a)
		if p := g.Enter(t.Context()); p == nil {
			t.Fatal("the place is not free again")
		} else {
			g.Leave(p)
		}
	})
}
