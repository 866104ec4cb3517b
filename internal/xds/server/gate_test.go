package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestGateLetsFewInAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(2, time.Hour)
		a, b := g.enter(t.Context()), g.enter(t.Context())
		in := make(chan *pass)
		go func() { in <- g.enter(t.Context()) }()
		synctest.Wait()
		select {
		case <-in:
			t.Fatal("a third one came in")
		default:
		}
		g.leave(a)
		g.leave(<-in)
		g.leave(b)
		if len(g.inside)+len(g.waiting) > 0 || g.relief != nil {
			t.Fatalf("left behind: %+v", g)
		}
	})
}

// TestGateIsNotHeldByTheDeaf: who is stuck gives the place away.
func TestGateIsNotHeldByTheDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 50*time.Millisecond)
		stuck := g.enter(t.Context())
		began := time.Now()
		for range 3 {
			_ = g.enter(t.Context()) // stuck, too
		}
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Fatalf("waited %v", took)
		}
		g.leave(stuck)
	})
}

func TestGateForgetsWhoGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, time.Hour)
		a := g.enter(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if p := g.enter(ctx); p != nil {
			t.Fatal("came in")
		}
		g.leave(a)
		if p := g.enter(t.Context()); p == nil {
			t.Fatal("the place is gone")
		} else {
			g.leave(p)
		}
	})
}
