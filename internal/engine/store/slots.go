package store

import (
	"sync"

	"github.com/pilotmesh/pilot/internal/engine/slab"
)

// slots assigns slot numbers to the keys of a table or an index. A row or group that is absent but was read has a slot too,
// so that its readers can be found when it appears. Cells that run concurrently may assign slots (see at); every other
// method is for the writer.
type slots[K comparable, T any] struct {
	mu   sync.RWMutex
	kept slab.Slab[K, slot[K, T]]
}

type slot[K comparable, T any] struct {
	key     K
	item    T
	changed Revision
	used    bool // the slot is assigned to key
	present bool // the row exists, or the group has members
}

// item returns a slot for reading, writable returns it for writing.
func (s *slots[K, T]) item(n uint32) *slot[K, T]     { return s.kept.At(n) }
func (s *slots[K, T]) writable(n uint32) *slot[K, T] { return s.kept.Writable(n) }

// at returns the item of k and its slot. It assigns a slot if k has none.
func (s *slots[K, T]) at(k K) (T, bool, uint32) {
	s.mu.RLock()
	n, ok := s.kept.Find(k)
	if ok {
		it := s.item(n)
		item, present := it.item, it.present
		s.mu.RUnlock()
		return item, present, n
	}
	s.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	n = s.ensure(k)
	return s.item(n).item, s.item(n).present, n
}

// peek returns the item of k. It does not assign a slot.
func (s *slots[K, T]) peek(k K) (item T, present bool) {
	if n, ok := s.kept.Find(k); ok {
		return s.item(n).item, s.item(n).present
	}
	return item, false
}

// ensure returns the slot of k, and assigns one if there is none. The caller holds mu or is the writer.
func (s *slots[K, T]) ensure(k K) uint32 {
	if n, ok := s.kept.Find(k); ok {
		return n
	}
	n := s.kept.Add(k)
	if n >= MaxSlots {
		panic("store: too many rows in one table")
	}
	*s.writable(n) = slot[K, T]{key: k, used: true}
	return n
}

// release frees a slot if its row or group is absent.
func (s *slots[K, T]) release(n uint32) {
	if it := s.kept.Lookup(n); it != nil && it.used && !it.present {
		s.kept.Drop(it.key)
	}
}

func (s *slots[K, T]) info(space string, n uint32) LeafInfo {
	it := s.kept.Lookup(n)
	if it == nil || !it.used {
		return LeafInfo{Space: space}
	}
	return LeafInfo{Space: space, Key: it.key, Present: it.present, Changed: it.changed}
}
