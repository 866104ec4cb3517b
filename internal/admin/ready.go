package admin

import (
	"slices"
	"sync"
)

// Readiness is what has to happen before the control plane may be asked for anything.
type Readiness struct {
	mu      sync.Mutex
	missing []string
}

// Missing adds a reason not to be ready. The returned function takes it away, once.
func (r *Readiness) Missing(reason string) (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing = append(r.missing, reason)
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		i := slices.Index(r.missing, reason)
		r.missing = slices.Delete(r.missing, i, i+1)
	})
}

// Reasons lists why the control plane is not ready, in the order in which they came up; none when it is.
func (r *Readiness) Reasons() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.missing)
}
