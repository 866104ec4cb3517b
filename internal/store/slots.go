package store

import "sync"

// slots gives out slot numbers for keys. Rows and groups that are absent but read have slots too, so that
// their appearance finds its readers. Reading cells may ask for slots concurrently; everything else is the writer's.
type slots[K comparable, T any] struct {
	mu    sync.RWMutex
	of    map[K]uint32
	items []slot[K, T]
	free  []uint32
}

type slot[K comparable, T any] struct {
	key     K
	item    T
	changed Revision
	present bool
}

// at returns the item under k and its slot, making a slot for an absent k.
func (s *slots[K, T]) at(k K) (T, bool, uint32) {
	s.mu.RLock()
	n, ok := s.of[k]
	if ok {
		it := &s.items[n]
		item, present := it.item, it.present
		s.mu.RUnlock()
		return item, present, n
	}
	s.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	n = s.ensure(k)
	return s.items[n].item, s.items[n].present, n
}

// peek returns the item under k without making a slot.
func (s *slots[K, T]) peek(k K) (item T, present bool) {
	if n, ok := s.of[k]; ok {
		return s.items[n].item, s.items[n].present
	}
	return item, false
}

// ensure returns k's slot; the caller holds mu or is the writer.
func (s *slots[K, T]) ensure(k K) uint32 {
	if n, ok := s.of[k]; ok {
		return n
	}
	if s.of == nil {
		s.of = make(map[K]uint32)
	}
	var n uint32
	if last := len(s.free) - 1; last >= 0 {
		n = s.free[last]
		s.free = s.free[:last]
	} else {
		n = uint32(len(s.items))
		if n == MaxSlots {
			panic("store: too many rows in one table")
		}
		s.items = append(s.items, slot[K, T]{})
	}
	s.items[n] = slot[K, T]{key: k}
	s.of[k] = n
	return n
}

// release frees an absent slot.
func (s *slots[K, T]) release(n uint32) {
	if int(n) >= len(s.items) || s.items[n].present {
		return
	}
	k := s.items[n].key
	if at, ok := s.of[k]; !ok || at != n {
		return
	}
	delete(s.of, k)
	s.items[n] = slot[K, T]{}
	s.free = append(s.free, n)
	if len(s.of)*4 < len(s.items) && len(s.of) > 64 {
		s.rebuildMap()
	}
}

// rebuildMap gives the memory of a map that was once much larger back. Slots keep their numbers.
func (s *slots[K, T]) rebuildMap() {
	if len(s.free) < len(s.items)/2 {
		return
	}
	m := make(map[K]uint32, len(s.of))
	for k, n := range s.of {
		m[k] = n
	}
	s.of = m
}

func (s *slots[K, T]) info(space string, n uint32) LeafInfo {
	if int(n) >= len(s.items) {
		return LeafInfo{Space: space}
	}
	it := &s.items[n]
	return LeafInfo{Space: space, Key: it.key, Present: it.present, Changed: it.changed}
}
