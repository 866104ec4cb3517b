// Package gate limits how many goroutines run an expensive operation at the same time.
//
// Invariant: at most the given number of places is taken, in all and by each client, not counting places that were held for longer than the patience
// of the gate. The package starts no goroutines; a timer runs while a pass waits.
package gate

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Gate limits how many streams write a big message, or are read from, at the same time. When many clients connect at once, that halves the work and
// bounds the memory. A stream whose client does not read or send loses its place after patience, so other clients do not wait long
// for it. The methods may be called from any goroutine.
type Gate struct {
	places, placesOf int
	patience         time.Duration

	mu sync.Mutex
	// inside has the passes with a place, and since when they have it.
	inside map[*Pass]time.Time
	// taken is how many places each client has; clients without one are not in it.
	taken map[string]int
	// waiting has the other passes in the order of arrival.
	waiting []*Pass
	// expiry is the timer of expirePlaces. It runs only while a pass waits.
	expiry *time.Timer
}

// Pass is a place, or the wait for one.
type Pass struct {
	client string
	// admitted is closed when the pass has a place.
	admitted chan struct{}
}

// New returns a gate with free places. One client can have at most placesOf of them.
func New(places, placesOf int, patience time.Duration) *Gate {
	return &Gate{places: places, placesOf: placesOf, patience: patience, inside: map[*Pass]time.Time{}, taken: map[string]int{}}
}

// Enter waits for a place for a client. The pass it returns must be given to Leave; it is nil if ctx ended first.
func (g *Gate) Enter(ctx context.Context, client string) *Pass {
	p := &Pass{client: client, admitted: make(chan struct{})}
	g.mu.Lock()
	if g.admits(p) { // then no other pass waits that could have the place
		g.admit(p)
	} else {
		g.waiting = append(g.waiting, p)
	}
	g.watch()
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
	if i := slices.Index(g.waiting, p); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	g.free(p)
	g.watch()
}

// admits reports whether there is a place for a pass. The caller must hold g.mu.
func (g *Gate) admits(p *Pass) bool {
	return len(g.inside) < g.places && g.taken[p.client] < g.placesOf
}

// admit gives a place to a pass. The caller must hold g.mu.
func (g *Gate) admit(p *Pass) {
	g.inside[p] = time.Now()
	g.taken[p.client]++
	close(p.admitted)
}

// free takes the place of a pass away, if it has one, and gives it to the first pass that can have it. One place is enough for one pass only, so the
// others are not looked at. The caller must hold g.mu.
func (g *Gate) free(p *Pass) {
	if _, ok := g.inside[p]; !ok {
		return
	}
	delete(g.inside, p)
	if g.taken[p.client]--; g.taken[p.client] == 0 {
		delete(g.taken, p.client)
	}
	if next := slices.IndexFunc(g.waiting, g.admits); next >= 0 {
		g.admit(g.waiting[next])
		g.waiting = slices.Delete(g.waiting, next, next+1)
	}
}

// watch lets places expire while a pass waits. The caller must hold g.mu.
func (g *Gate) watch() {
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
			g.free(p)
		}
	}
	g.watch()
}
