// Package memo caches results of pure functions while they are in use. Results are values of their keys alone, so nothing ever invalidates
// them. It starts no goroutines.
package memo

import "sync"

// Memo caches results of pure functions while they are in use. It drops results that were not used between two calls of
// forget, and the older generation when the younger one reaches the limit. Streams that need the same key at the same time
// compute it once.
type Memo[K comparable, V any] struct {
	// limit is the largest number of results in the younger generation.
	limit int

	mu         sync.Mutex
	young, old map[K]*entry[V]
}

type entry[V any] struct {
	mu   sync.Mutex
	done bool
	v    V
}

// New returns a Memo whose younger generation has at most limit results.
func New[K comparable, V any](limit int) *Memo[K, V] {
	return &Memo[K, V]{limit: limit, young: map[K]*entry[V]{}}
}

// Get returns the result for a key, and computes it if it is not there.
func (m *Memo[K, V]) Get(k K, compute func() V) V {
	c := m.cell(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	// If compute panics, the stream ends and done stays false, so that the next stream computes the value again.
	if !c.done {
		c.v = compute()
		c.done = true
	}
	return c.v
}

func (m *Memo[K, V]) cell(k K) *entry[V] {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.young[k]; ok {
		return c
	}
	c, ok := m.old[k]
	if !ok {
		c = &entry[V]{}
	}
	if len(m.young) >= m.limit {
		m.age()
	}
	m.young[k] = c
	return c
}

// Forget drops the results that were not used since the call before.
func (m *Memo[K, V]) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.age()
}

// age drops the older generation and makes the younger one the older.
func (m *Memo[K, V]) age() {
	if len(m.young) == 0 && len(m.old) == 0 {
		return
	}
	m.old, m.young = m.young, map[K]*entry[V]{}
}

// Len is the number of cached results.
func (m *Memo[K, V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.young)
	for k := range m.old {
		if _, ok := m.young[k]; !ok {
			n++
		}
	}
	return n
}
