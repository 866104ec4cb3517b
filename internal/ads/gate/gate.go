// Package gate limits how many goroutines run an expensive operation at the same time.
//
// Invariant: at most the given number of places is taken, not counting places that were held for longer than the patience of
// the gate. The package starts no goroutines; a timer runs while a pass waits.
package gate

import (
	"context"
	"sync"
	"time"
)

// Gate limits how many streams write a big message at the same time. When many clients connect at once, that halves the work and
// bounds the memory. A writer whose client does not read loses its place after patience, so clients that read do not wait long
// for clients that do not. The methods may be called from any goroutine.
type Gate struct {
	places   int
	patience time.Duration

	mu sync.Mutex
	// inside has the passes with a place, and since when they have it.
	inside map[*Pass]time.Time
	// waiting has the other passes in the order of arrival.
	waiting []*Pass
	// expiry is the timer of expirePlaces. It runs only while a pass waits.
	expiry *time.Timer
}

// Pass is a place, or the wait for one.
type Pass struct {
	// admitted is closed when the pass has a place.
	admitted chan struct{}
}

// New returns a gate with free places.
func New(places int, patience time.Duration) *Gate {
	return &Gate{places: places, patience: patience, inside: map[*Pass]time.Time{}}
}

// Enter waits for a place. The pass it returns must be given to Leave; it is nil if ctx ended first.
func (g *Gate) Enter(ctx context.Context) *Pass {
	p := &Pass{admitted: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, p)
	g.admit()
	g.mu.Unlock()
	select {
	case <-p.admitted:
		return p
	case <-ctx.Done():
		g.Leave(p)
		return nil
	}
}

// Leave gives the place back. It may also be called if the place has expired or was never taken.
func (g *Gate) Leave(p *Pass) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inside, p)
	for i, w := range g.waiting {
		if w == p {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			break
		}
	}
	g.admit()
}

// admit fills free places. The caller must hold g.mu.
func (g *Gate) admit() {
	for len(g.waiting) > 0 && len(g.inside) < g.places {
		p := g.waiting[0]
		g.waiting = g.waiting[1:]
		g.inside[p] = time.Now()
		close(p.admitted)
	}
	switch {
	case len(g.waiting) == 0:
		g.waiting = nil
		if g.expiry != nil {
			g.expiry.Stop()
			g.expiry = nil
		}
	case g.expiry == nil:
		g.expiry = time.AfterFunc(g.patience, g.expirePlaces)
	}
}

// expirePlaces takes places away that were held for longer than patience.
func (g *Gate) expirePlaces() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expiry = nil
	now := time.Now()
	for p, since := range g.inside {
		if now.Sub(since) >= g.patience {
			delete(g.inside, p)
		}
	}
	g.admit()
}
