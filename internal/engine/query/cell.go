package query

import (
	"sync"

	"github.com/pilotmesh/pilot/internal/engine/slab"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// node is the part of a cell that does not depend on its type.
type node struct {
	reads   []store.ID // the leaves and cells that the last run read, in order, each once
	users   userSet
	changed store.Revision // the commit that last changed the value
	flags   flags
	queued  lane // the lane in which the cell waits to run; laneNone if it does not wait
}

type flags uint8

const (
	ready     flags = 1 << iota // the cell has been computed: its value, or the absence of a value, is valid
	present                     // there is a value
	failed                      // the last run panicked; the value, if present, is from an earlier run
	computing                   // a worker is computing the cell for the first time
	orphaned                    // the cell is in Graph.orphans
	observed                    // the cell is a root
	faulty                      // the cell has an entry in Graph.faults
)

type lane uint8

const (
	laneUpdate lane = iota // cells that were complete and have to be brought up to date; run by Commit
	laneBuild              // first computations of new roots; run by Slice
	laneNone   lane = 255
)

// latch locks the cells of a query while several goroutines run cells.
type latch struct {
	g  *Graph
	mu sync.RWMutex
}

func (l *latch) rlock() {
	if l.g.parallel {
		l.mu.RLock()
	}
}

func (l *latch) runlock() {
	if l.g.parallel {
		l.mu.RUnlock()
	}
}

func (l *latch) lock() {
	if l.g.parallel {
		l.mu.Lock()
	}
}

func (l *latch) unlock() {
	if l.g.parallel {
		l.mu.Unlock()
	}
}

// cells holds the cells of one query. Cells that run in parallel may look up and add cells, under the lock; every other method
// is for the owner of the graph.
type cells[K comparable, T any] struct {
	latch
	kept slab.Slab[K, entry[K, T]]
}

type entry[K comparable, T any] struct {
	node
	key K
	val T
}

func (s *cells[K, T]) at(slot uint32) *entry[K, T] { return s.kept.At(slot) }

func (s *cells[K, T]) node(slot uint32) *node { return &s.at(slot).node }

func (s *cells[K, T]) live() int { return s.kept.Len() }

// find returns the cell of k, if there is one. The caller holds the lock.
func (s *cells[K, T]) find(k K) (*entry[K, T], uint32, bool) {
	n, ok := s.kept.Find(k)
	if !ok {
		return nil, 0, false
	}
	return s.at(n), n, true
}

// ensure returns the cell of k. It creates the cell if there is none. The caller holds the write lock.
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

// built reports whether the cell of k has been computed.
func (s *cells[K, T]) built(k K) bool {
	c, _, ok := s.find(k)
	return ok && c.flags&ready != 0
}

// readBuilt returns the cell of k and records the read. It is for spaces whose cells run on their own and not when they are
// first read (collections, groups and layers): if the cell has not been computed, the running cell aborts and runs again later.
func (s *cells[K, T]) readBuilt(r *Reader, space int, k K) *entry[K, T] {
	r.checkRank(space)
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
