package query

import (
	"slices"
	"sync"

	"github.com/pilotmesh/pilot/internal/store"
)

// node is the header of a cell.
type node struct {
	reads   []store.ID // what the last run read, in order, each once
	users   userSet
	changed store.Revision // the commit that last changed the value
	flags   flags
	queued  lane // the lane the cell has work in, laneNone if none
}

type flags uint8

const (
	ready     flags = 1 << iota // has been computed: the value, or its absence, stands
	present                     // the value is there
	failed                      // the last run panicked; the value, if present, is an older one
	computing                   // a worker is computing it for the first time
	orphaned                    // listed in Graph.orphans
	observed                    // a root
)

type lane uint8

const (
	lane0    lane = iota // what was complete stays fresh
	lane1                // first computation of new roots
	laneNone lane = 255
)

// manyUsers is the number from which a cell keeps its users' positions, so that losing one is not a search.
const manyUsers = 256

// userSet is the set of cells that read something. Order means nothing.
type userSet struct {
	list []store.ID
	at   map[store.ID]uint32 // positions in list, while there are many
}

func (s *userSet) add(u store.ID) {
	if s.at != nil {
		s.at[u] = uint32(len(s.list))
	} else if len(s.list) == manyUsers {
		s.at = make(map[store.ID]uint32, 2*manyUsers)
		for i, old := range s.list {
			s.at[old] = uint32(i)
		}
		s.at[u] = uint32(len(s.list))
	}
	s.list = append(s.list, u)
}

func (s *userSet) remove(u store.ID) {
	i, last := 0, len(s.list)-1
	if s.at != nil {
		i = int(s.at[u])
		delete(s.at, u)
		if i != last {
			s.at[s.list[last]] = uint32(i)
		}
		if last < manyUsers/2 {
			s.at = nil
		}
	} else {
		i = slices.Index(s.list, u)
	}
	s.list[i] = s.list[last]
	s.list = s.list[:last]
	if cap(s.list) > 4*last+8 {
		s.list = slices.Clone(s.list)
	}
}

const pageSize = 256

// slab keeps the cells of one query in pages, so that their addresses stay, and gives empty pages back.
// Cells being computed may look up and add concurrently (lock); everything else is the owner's.
type slab[K comparable, T any] struct {
	g     *Graph
	mu    sync.RWMutex
	of    map[K]uint32
	peak  int // largest len(of) since the map was last made
	pages []*page[K, T]
	free  []uint32
}

type page[K comparable, T any] struct {
	cells [pageSize]entry[K, T]
	live  int
}

type entry[K comparable, T any] struct {
	node
	key K
	val T
}

func (s *slab[K, T]) rlock() {
	if s.g.parallel {
		s.mu.RLock()
	}
}

func (s *slab[K, T]) runlock() {
	if s.g.parallel {
		s.mu.RUnlock()
	}
}

func (s *slab[K, T]) lock() {
	if s.g.parallel {
		s.mu.Lock()
	}
}

func (s *slab[K, T]) unlock() {
	if s.g.parallel {
		s.mu.Unlock()
	}
}

func (s *slab[K, T]) at(slot uint32) *entry[K, T] {
	return &s.pages[slot/pageSize].cells[slot%pageSize]
}

func (s *slab[K, T]) node(slot uint32) *node { return &s.at(slot).node }

func (s *slab[K, T]) live() int { return len(s.of) }

// find returns k's cell; the caller holds the lock.
func (s *slab[K, T]) find(k K) (*entry[K, T], uint32, bool) {
	n, ok := s.of[k]
	if !ok {
		return nil, 0, false
	}
	return s.at(n), n, true
}

// ensure returns k's cell, making it if need be; the caller holds the write lock.
func (s *slab[K, T]) ensure(k K) (*entry[K, T], uint32) {
	if c, n, ok := s.find(k); ok {
		return c, n
	}
	if s.of == nil {
		s.of = make(map[K]uint32)
	}
	n := s.slot()
	p := s.pages[n/pageSize]
	p.live++
	c := &p.cells[n%pageSize]
	c.key, c.queued = k, laneNone
	s.of[k] = n
	s.peak = max(s.peak, len(s.of))
	return c, n
}

// slot takes a free slot, or the first of a new page.
func (s *slab[K, T]) slot() uint32 {
	if len(s.free) == 0 {
		first := uint32(len(s.pages) * pageSize)
		if first+pageSize > store.MaxSlots {
			panic("query: too many cells in one query")
		}
		s.pages = append(s.pages, nil)
		for i := uint32(pageSize); i > 0; i-- {
			s.free = append(s.free, first+i-1)
		}
	}
	n := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	if s.pages[n/pageSize] == nil {
		s.pages[n/pageSize] = new(page[K, T])
	}
	return n
}

func (s *slab[K, T]) drop(slot uint32) {
	p := s.pages[slot/pageSize]
	c := &p.cells[slot%pageSize]
	delete(s.of, c.key)
	*c = entry[K, T]{}
	p.live--
	s.free = append(s.free, slot)
	if p.live == 0 {
		s.pages[slot/pageSize] = nil
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
