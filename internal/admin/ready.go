package admin

import (
	"slices"
	"sync"
)

// Readiness is the set of reasons why the control plane is not ready.
type Readiness struct {
	mu      sync.Mutex
	missing []string
}

// Missing adds a reason. The returned function removes it, and may be called once.
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

// Reasons returns the reasons in the order in which they were added; none if the control plane is ready.
func (r *Readiness) Reasons() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.missing)
}
