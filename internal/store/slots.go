package store

import "sync"

// slots gives out slot numbers for keys, in pages that are given back when they are empty. Rows and groups that are absent
// but read have slots too, so that their appearance finds its readers. Reading cells may ask for slots concurrently;
// everything else is the writer's.
type slots[K comparable, T any] struct {
	mu    sync.RWMutex
	of    map[K]uint32
	peak  int // largest len(of) since the map was last made
	pages []*slotPage[K, T]
	free  []uint32
}

const pageSize = 256

type slotPage[K comparable, T any] struct {
	items [pageSize]slot[K, T]
	used  int
}

type slot[K comparable, T any] struct {
	key     K
	item    T
	changed Revision
	used    bool // the key has this slot
	present bool // the row exists, the group has members
}

func (s *slots[K, T]) item(n uint32) *slot[K, T] { return &s.pages[n/pageSize].items[n%pageSize] }

// at returns the item under k and its slot, making a slot for an absent k.
func (s *slots[K, T]) at(k K) (T, bool, uint32) {
	s.mu.RLock()
	n, ok := s.of[k]
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
	if n, ok := s.of[k]; ok {
		return s.item(n).item, s.item(n).present
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
	n := s.take()
	s.pages[n/pageSize].used++
	*s.item(n) = slot[K, T]{key: k, used: true}
	s.of[k] = n
	s.peak = max(s.peak, len(s.of))
	return n
}

// take returns a free slot, or the first of a new page.
func (s *slots[K, T]) take() uint32 {
	if len(s.free) == 0 {
		first := uint32(len(s.pages) * pageSize)
		if first+pageSize > MaxSlots {
			panic("store: too many rows in one table")
		}
		s.pages = append(s.pages, nil)
		for i := uint32(pageSize); i > 0; i-- {
			s.free = append(s.free, first+i-1)
		}
	}
	n := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	if s.pages[n/pageSize] == nil {
		s.pages[n/pageSize] = new(slotPage[K, T])
	}
	return n
}

// release frees an absent slot.
func (s *slots[K, T]) release(n uint32) {
	if int(n/pageSize) >= len(s.pages) {
		return
	}
	p := s.pages[n/pageSize]
	if p == nil || !p.items[n%pageSize].used || p.items[n%pageSize].present {
		return
	}
	delete(s.of, p.items[n%pageSize].key)
	p.items[n%pageSize] = slot[K, T]{}
	s.free = append(s.free, n)
	if p.used--; p.used == 0 {
		s.pages[n/pageSize] = nil
	}
	switch {
	case len(s.of) == 0:
		s.of, s.peak, s.pages, s.free = nil, 0, nil, nil
	case len(s.of)*4 < s.peak && s.peak > 4*pageSize: // maps do not shrink
		of := make(map[K]uint32, len(s.of))
		for k, n := range s.of {
			of[k] = n
		}
		s.of, s.peak = of, len(of)
	}
}

func (s *slots[K, T]) info(space string, n uint32) LeafInfo {
	if int(n/pageSize) >= len(s.pages) || s.pages[n/pageSize] == nil {
		return LeafInfo{Space: space}
	}
	it := s.item(n)
	return LeafInfo{Space: space, Key: it.key, Present: it.present, Changed: it.changed}
}
