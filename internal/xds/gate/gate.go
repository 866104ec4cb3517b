// Package gate lets few at a time do what is expensive when many do it at once.
//
// A Gate's invariant: at most its number of places is taken, but for those that were held for longer than its patience. It
// starts no goroutines; a timer runs while somebody waits. The package imports nothing of this project.
package gate

import (
	"context"
	"sync"
	"time"
)

// Gate lets few streams write a big message at a time: that halves the work of a herd and bounds its peak. A writer
// that got stuck because its client does not read gives its place away after patience, so clients that read never
// queue behind clients that do not. Its methods may be called from any goroutine.
type Gate struct {
	places   int
	patience time.Duration

	mu      sync.Mutex
	inside  map[*Pass]time.Time
	waiting []*Pass     // in order of arrival
	relief  *time.Timer // runs only while somebody waits
}

// Pass is a place, or the wait for one.
type Pass struct {
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

// Leave gives the place back; also one that was given away meanwhile, or that was never taken.
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

// admit fills free places; g.mu is held.
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
		if g.relief != nil {
			g.relief.Stop()
			g.relief = nil
		}
	case g.relief == nil:
		g.relief = time.AfterFunc(g.patience, g.relieve)
	}
}

// relieve takes the places of those who have been inside too long.
func (g *Gate) relieve() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.relief = nil
	now := time.Now()
	for p, since := range g.inside {
		if now.Sub(since) >= g.patience {
			delete(g.inside, p)
		}
	}
	g.admit()
}
