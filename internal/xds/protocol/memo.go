package protocol

import "sync"

// memo remembers results of pure functions for as long as they are being asked for: those that were not asked for
// between two calls of forget are dropped, and so is the older half when there are too many. Streams that ask for
// the same key at the same time compute it once.
type memo[K comparable, V any] struct {
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
	// A computation that panics leaves the cell undone: its stream ends, the next one tries again.
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
		m.turn()
	}
	m.young[k] = c
	return c
}

func (m *memo[K, V]) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn()
}

func (m *memo[K, V]) turn() {
	if len(m.young) == 0 && len(m.old) == 0 {
		return
	}
	m.old, m.young = m.young, map[K]*memoCell[V]{}
}

// len counts what is remembered.
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
