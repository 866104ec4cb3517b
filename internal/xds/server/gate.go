package server

import (
	"context"
	"sync"
	"time"
)

// gate lets few streams write a big message at a time: that halves the work of a herd and bounds its peak. A writer
// that got stuck because its client does not read gives its place away after patience, so clients that read never
// queue behind clients that do not.
type gate struct {
	places   int
	patience time.Duration

	mu      sync.Mutex
	inside  map[*pass]time.Time
	waiting []*pass     // in order of arrival
	relief  *time.Timer // runs only while somebody waits
}

type pass struct {
	admitted chan struct{}
}

func newGate(places int, patience time.Duration) *gate {
	return &gate{places: places, patience: patience, inside: map[*pass]time.Time{}}
}

// enter waits for a place. The pass it returns must be given to leave; it is nil if ctx ended first.
func (g *gate) enter(ctx context.Context) *pass {
	p := &pass{admitted: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, p)
	g.admit()
	g.mu.Unlock()
	select {
	case <-p.admitted:
		return p
	case <-ctx.Done():
		g.leave(p)
		return nil
	}
}

// leave gives the place back; also one that was given away meanwhile, or that was never taken.
func (g *gate) leave(p *pass) {
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
func (g *gate) admit() {
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
func (g *gate) relieve() {
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
