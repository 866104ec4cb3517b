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

// Waiting is a reason why the control plane is not ready, with the causes that keep it so.
type Waiting struct {
	of     *Readiness
	text   string
	shown  string
	done   func()
	causes []string
}

// Waiting adds a reason. One goroutine may use the result.
func (r *Readiness) Waiting(reason string) *Waiting {
	return &Waiting{of: r, text: reason, shown: reason, done: r.Missing(reason)}
}

// Hindered notes a cause, or that it is gone. The reason names the first of them.
func (w *Waiting) Hindered(cause string, gone bool) {
	if i := slices.Index(w.causes, cause); gone && i >= 0 {
		w.causes = slices.Delete(w.causes, i, i+1)
	} else if !gone && i < 0 {
		w.causes = append(w.causes, cause)
	}
	text := w.text
	if len(w.causes) > 0 {
		text += ": " + w.causes[0]
	}
	if w.done == nil || text == w.shown {
		return
	}
	w.done()
	w.shown, w.done = text, w.of.Missing(text)
}

// Done removes the reason. It may be called again.
func (w *Waiting) Done() {
	if w.done != nil {
		w.done()
	}
	w.done = nil
}
