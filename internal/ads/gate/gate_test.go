package gate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestGateLetsFewInAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(2, 2, time.Hour)
		a, b := g.Enter(t.Context(), "a"), g.Enter(t.Context(), "a")
		in := make(chan *Pass)
		go func() { in <- g.Enter(t.Context(), "a") }()
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
		g := New(1, 1, 50*time.Millisecond)
		stuck := g.Enter(t.Context(), "a")
		began := time.Now()
		for range 3 {
			_ = g.Enter(t.Context(), "a") // stuck, too
		}
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Fatalf("waited %v", took)
		}
		g.Leave(stuck)
	})
}

func TestGateForgetsWhoGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(1, 1, time.Hour)
		a := g.Enter(t.Context(), "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if p := g.Enter(ctx, "a"); p != nil {
			t.Fatal("came in")
		}
		g.Leave(a)
		if p := g.Enter(t.Context(), "a"); p == nil {
			t.Fatal("the place is not free again")
		} else {
			g.Leave(p)
		}
	})
}

// TestGateHasRoomForOthers checks that one client cannot have all places, however many of its streams wait.
func TestGateHasRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(4, 2, time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		for range 5 {
			go g.Enter(ctx, "crowd")
		}
		synctest.Wait()
		if g.taken["crowd"] != 2 || len(g.waiting) != 3 {
			t.Fatalf("the crowd has %d places and %d streams wait", g.taken["crowd"], len(g.waiting))
		}
		a, b := g.Enter(t.Context(), "a"), g.Enter(t.Context(), "b") // they do not wait
		g.Leave(a)
		g.Leave(b)
		for p := range g.inside {
			g.Leave(p)
			break
		}
		if g.taken["crowd"] != 2 || len(g.waiting) != 2 {
			t.Fatalf("after one left, the crowd has %d places and %d streams wait", g.taken["crowd"], len(g.waiting))
		}
		cancel()
		synctest.Wait()
	})
}
