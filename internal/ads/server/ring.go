package server

import (
	"context"
	"sync"
	"time"
)

// settleTime is how long a stream uses the slow ring after a large message. The first steps of a new stream produce tens of
// megabytes, and settled streams must not wait behind them. The duration of a step would be a bad criterion: on a busy machine
// it is mostly waiting.
const settleTime = time.Second

// ring is a queue of streams for which requests, states, answers or timeouts have arrived. To add one costs a lock and an
// append.
type ring struct {
	// wake has a token while there may be work, at most one per worker.
	wake chan struct{}

	mu    sync.Mutex
	dirty []*Stream
}

func newRing(workers int) *ring { return &ring{wake: make(chan struct{}, workers)} }

func (r *ring) put(s *Stream) {
	r.mu.Lock()
	r.dirty = append(r.dirty, s)
	r.mu.Unlock()
	r.signal()
}

func (r *ring) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take moves waiting streams into buf, as many as its capacity allows.
func (r *ring) take(buf []*Stream) []*Stream {
	r.mu.Lock()
	n := min(len(r.dirty), cap(buf))
	buf = append(buf[:0], r.dirty[:n]...)
	rest := copy(r.dirty, r.dirty[n:])
	clear(r.dirty[rest:])
	r.dirty = r.dirty[:rest]
	r.mu.Unlock()
	if rest > 0 {
		r.signal()
	}
	return buf
}

// work processes the streams of the ring until ctx ends. It never waits for a client.
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
				stream.process(nil)
			}
			clear(batch)
		}
	}
}
