package server

import (
	"context"
	"sync"
	"time"
)

// unsettled is for how long a stream stays in the slow ring after it was sent anything big. The first steps of a new
// stream make tens of megabytes of messages; whoever is settled must not queue behind them. (How long a step takes says
// little about it: on a busy machine that is mostly waiting.)
const unsettled = time.Second

// ring holds the streams for which something has come. Putting one in costs a lock and an append.
type ring struct {
	wake chan struct{} // has a token while there may be work; one per worker at most

	mu    sync.Mutex
	dirty []*Stream
}

func newRing(workers int) *ring { return &ring{wake: make(chan struct{}, workers)} }

func (r *ring) put(s *Stream) {
	r.mu.Lock()
	r.dirty = append(r.dirty, s)
	r.mu.Unlock()
	r.call()
}

func (r *ring) call() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take moves waiting streams into buf, as many as fit.
func (r *ring) take(buf []*Stream) []*Stream {
	r.mu.Lock()
	n := min(len(r.dirty), cap(buf))
	buf = append(buf[:0], r.dirty[:n]...)
	rest := copy(r.dirty, r.dirty[n:])
	clear(r.dirty[rest:])
	r.dirty = r.dirty[:rest]
	r.mu.Unlock()
	if rest > 0 {
		r.call()
	}
	return buf
}

// work takes streams off the ring for which something has come. It never waits for a client.
func (r *ring) work(ctx context.Context) {
	batch := make([]*Stream, 0, 32)
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		for batch = r.take(batch); len(batch) > 0; batch = r.take(batch) {
			for _, stream := range batch {
				stream.refresh(nil)
			}
			clear(batch)
		}
	}
}
