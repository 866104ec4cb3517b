package query

import (
	"sync"

	"github.com/pilotmesh/pilot/internal/slab"
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
	faulty                      // has an entry in Graph.faults
)

type lane uint8

const (
	lane0    lane = iota // what was complete stays fresh
	lane1                // first computation of new roots
	laneNone lane = 255
)

// cells are those of one query. Cells being computed may look up and add concurrently (lock); everything else is the
// owner's.
type cells[K comparable, T any] struct {
	g    *Graph
	mu   sync.RWMutex
	kept slab.Slab[K, entry[K, T]]
}

type entry[K comparable, T any] struct {
	node
	key K
	val T
}

func (s *cells[K, T]) rlock() {
	if s.g.parallel {
		s.mu.RLock()
	}
}

func (s *cells[K, T]) runlock() {
	if s.g.parallel {
		s.mu.RUnlock()
	}
}

func (s *cells[K, T]) lock() {
	if s.g.parallel {
		s.mu.Lock()
	}
}

func (s *cells[K, T]) unlock() {
	if s.g.parallel {
		s.mu.Unlock()
	}
}

func (s *cells[K, T]) at(slot uint32) *entry[K, T] { return s.kept.At(slot) }

func (s *cells[K, T]) node(slot uint32) *node { return &s.at(slot).node }

func (s *cells[K, T]) live() int { return s.kept.Len() }

// find returns k's cell; the caller holds the lock.
func (s *cells[K, T]) find(k K) (*entry[K, T], uint32, bool) {
	n, ok := s.kept.Find(k)
	if !ok {
		return nil, 0, false
	}
	return s.at(n), n, true
}

// ensure returns k's cell, making it if need be; the caller holds the write lock.
func (s *cells[K, T]) ensure(k K) (*entry[K, T], uint32) {
	if c, n, ok := s.find(k); ok {
		return c, n
	}
	n := s.kept.Add(k)
	if n >= store.MaxSlots {
		panic("query: too many cells in one query")
	}
	c := s.at(n)
	c.key, c.queued = k, laneNone
	return c, n
}

// built reports whether k's cell has been computed.
func (s *cells[K, T]) built(k K) bool {
	c, _, ok := s.find(k)
	return ok && c.flags&ready != 0
}

// await reads k's cell, of a space whose cells are not computed on the way: what reads one before it is built gives up until
// it is.
func (s *cells[K, T]) await(r *Reader, space int, k K) *entry[K, T] {
	r.below(space)
	s.lock()
	c, slot := s.ensure(k)
	settled := c.flags&ready != 0
	s.unlock()
	id := store.CellID(space, slot)
	if !settled {
		r.wait(id)
	}
	r.Read(id)
	return c
}

func (s *cells[K, T]) drop(slot uint32) { s.kept.Drop(s.at(slot).key) }
