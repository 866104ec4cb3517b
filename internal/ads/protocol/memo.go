package protocol

import "sync"

// memo caches results of pure functions while they are in use. It drops results that were not used between two calls of
// forget, and the older generation when the younger one reaches the limit. Streams that need the same key at the same time
// compute it once.
type memo[K comparable, V any] struct {
	// limit is the largest number of results in the younger generation.
	limit int

	mu         sync.Mutex
	young, old map[K]*memoCell[V]
}

type memoCell[V any] struct {
	mu   sync.Mutex
	done bool
	v    V
}

func newMemo[K comparable, V any](limit int) *memo[K, V] {
	return &memo[K, V]{limit: limit, young: map[K]*memoCell[V]{}}
}

func (m *memo[K, V]) get(k K, compute func() V) V {
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

func (m *memo[K, V]) cell(k K) *memoCell[V] {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.young[k]; ok {
		return c
	}
	c, ok := m.old[k]
	if !ok {
		c = &memoCell[V]{}
	}
	if len(m.young) >= m.limit {
		m.age()
	}
	m.young[k] = c
	return c
}

func (m *memo[K, V]) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.age()
}

// age drops the older generation and makes the younger one the older.
func (m *memo[K, V]) age() {
	if len(m.young) == 0 && len(m.old) == 0 {
		return
	}
	m.old, m.young = m.young, map[K]*memoCell[V]{}
}

// len is the number of cached results.
func (m *memo[K, V]) len() int {
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
