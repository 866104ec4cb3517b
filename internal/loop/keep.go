package loop

// Kept is the value of a query that the loop keeps fresh for a controller: a part of the program that does outside what the value says.
type Kept[V any] struct {
	value   V // belongs to the loop's goroutine
	changed chan struct{}
}

// Keep keeps the value of a query for a key fresh while the loop runs. observe is the Observe method of the query. Keep must be called
// before Run, and at most once for each query and key.
func Keep[K, V any](l *Loop, observe func(k K, fn func(V)) (release func()), k K) *Kept[V] {
	kept := &Kept[V]{changed: make(chan struct{}, 1)}
	l.kept = append(l.kept, func() (release func()) {
		return observe(k, func(v V) {
			kept.value = v
			select {
			case kept.changed <- struct{}{}:
			default: // the controller has not looked at an earlier change yet
			}
		})
	})
	return kept
}

// In returns the value in a view; the zero value before the first one. It may be called within Inspect only.
func (k *Kept[V]) In(*View) V { return k.value }

// Changed has a token after the value has changed. It is for one reader.
func (k *Kept[V]) Changed() <-chan struct{} { return k.changed }
