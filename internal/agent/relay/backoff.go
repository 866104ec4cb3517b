package relay

import (
	"math/rand/v2"
	"sync"
	"time"
)

// backoff decides when to try to reach the control plane again. The pauses grow as long as no stream lasts, also from one stream of Envoy
// to the next, so that a control plane that drops streams at once is not asked more often than one that cannot be reached.
type backoff struct {
	mu    sync.Mutex
	pause time.Duration // the last one; 0 if the last stream has lasted
	until time.Time
}

// failed makes the next pause longer than the last one, but no longer than a limit. Agents that lost the same control plane come back one by
// one.
func (b *backoff) failed(limit time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pause = min(max(firstRetry, 2*b.pause), limit)
	b.until = time.Now().Add(b.pause/2 + rand.N(b.pause))
}

// lasted ends the pauses.
func (b *backoff) lasted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pause, b.until = 0, time.Time{}
}

// left is how long the present pause still takes; not positive if there is none.
func (b *backoff) left() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Until(b.until)
}
