package store

import (
	"sync"

	"github.com/pilotmesh/pilot/internal/slab"
)

// slots gives out slot numbers for keys. Rows and groups that are absent but read have slots too, so that their appearance
// finds its readers. Reading cells may ask for slots concurrently; everything else is the writer's.
type slots[K comparable, T any] struct {
	mu   sync.RWMutex
	kept slab.Slab[K, slot[K, T]]
}

type slot[K comparable, T any] struct {
	key     K
	item    T
	changed Revision
	used    bool // the key has this slot
	present bool // the row exists, the group has members
}

// item is a slot to read, own is one to write.
func (s *slots[K, T]) item(n uint32) *slot[K, T] { return s.kept.At(n) }
func (s *slots[K, T]) own(n uint32) *slot[K, T]  { return s.kept.Writable(n) }

// at returns the item under k and its slot, making a slot for an absent k.
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

// peek returns the item under k without making a slot.
func (s *slots[K, T]) peek(k K) (item T, present bool) {
	if n, ok := s.kept.Find(k); ok {
		return s.item(n).item, s.item(n).present
	}
	return item, false
}

// ensure returns k's slot; the caller holds mu or is the writer.
func (s *slots[K, T]) ensure(k K) uint32 {
	if n, ok := s.kept.Find(k); ok {
		return n
	}
	n := s.kept.Add(k)
	if n >= MaxSlots {
		panic("store: too many rows in one table")
	}
	*s.own(n) = slot[K, T]{key: k, used: true}
	return n
}

// release frees an absent slot.
func (s *slots[K, T]) release(n uint32) {
	if it := s.kept.Get(n); it != nil && it.used && !it.present {
		s.kept.Drop(it.key)
	}
}

func (s *slots[K, T]) info(space string, n uint32) LeafInfo {
	it := s.kept.Get(n)
	if it == nil || !it.used {
		return LeafInfo{Space: space}
	}
	return LeafInfo{Space: space, Key: it.key, Present: it.present, Changed: it.changed}
}
