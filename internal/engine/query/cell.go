package query

import (
	"fmt"
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

// base is the part of a space that depends on no type: its number and name, and the nodes of its cells.
type base struct {
	g     *Graph
	name  string
	space int
	live  int          // the number of cells
	mu    sync.RWMutex // of the cells, while several goroutines run cells
	nodes slab.Pages[node]
}

func (b *base) common() *base { return b }

func (b *base) node(slot uint32) *node { return b.nodes.At(slot) }

func (b *base) id(slot uint32) store.ID { return store.CellID(b.space, slot) }

func (b *base) rlock() {
	if b.g.parallel {
		b.mu.RLock()
	}
}

func (b *base) runlock() {
	if b.g.parallel {
		b.mu.RUnlock()
	}
}

func (b *base) lock() {
	if b.g.parallel {
		b.mu.Lock()
	}
}

func (b *base) unlock() {
	if b.g.parallel {
		b.mu.Unlock()
	}
}

// addNode adds the node of a new cell.
func (b *base) addNode(slot uint32) {
	if slot >= store.MaxSlots {
		panic("query: too many cells in one query")
	}
	b.nodes.Allocate(slot).queued = laneNone
	b.live++
}

// cells holds the keys and values of the cells of one space, whose nodes are in base. Cells that run in parallel may look up and
// add cells, under the lock; every other method is for the owner of the graph.
type cells[K comparable, T any] struct {
	b      *base
	slots  slab.Slots[K]
	keys   slab.Pages[K]
	values slab.Pages[T]
}

// cell is one cell of a space, without its key.
type cell[T any] struct {
	*node
	val *T
}

func (s *cells[K, T]) at(slot uint32) cell[T] { return cell[T]{s.b.nodes.At(slot), s.values.At(slot)} }

func (s *cells[K, T]) key(slot uint32) K { return *s.keys.At(slot) }

// find returns the cell of k, if there is one. The caller holds the lock.
func (s *cells[K, T]) find(k K) (c cell[T], slot uint32, ok bool) {
	if slot, ok = s.slots.Find(k); ok {
		c = s.at(slot)
	}
	return c, slot, ok
}

// ensure returns the cell of k. It creates the cell if there is none. The caller holds the write lock.
func (s *cells[K, T]) ensure(k K) (c cell[T], slot uint32) {
	slot, ok := s.slots.Find(k)
	if !ok {
		slot = s.slots.Assign(k)
		s.b.addNode(slot)
		*s.keys.Allocate(slot) = k
		s.values.Allocate(slot)
	}
	return s.at(slot), slot
}

// built reports whether the cell of k has been computed.
func (s *cells[K, T]) built(k K) bool {
	slot, ok := s.slots.Find(k)
	return ok && s.b.node(slot).flags&ready != 0
}

// readBuilt returns the value of the cell of k and records the read. It is for spaces whose cells run on their own and not when
// they are first read (collections, groups and layers): if the cell has not been computed, the running cell aborts and runs
// again later.
func (s *cells[K, T]) readBuilt(r *Reader, k K) *T {
	r.checkRank(s.b.space)
	s.b.lock()
	c, slot := s.ensure(k)
	settled := c.flags&ready != 0
	s.b.unlock()
	if !settled {
		r.wait(s.b.id(slot))
	}
	r.Read(s.b.id(slot))
	return c.val
}

// text returns the key of a cell for people.
func (s *cells[K, T]) text(slot uint32) string { return fmt.Sprint(s.key(slot)) }

func (s *cells[K, T]) remove(slot uint32) {
	if _, left, ok := s.slots.Unassign(s.key(slot)); ok {
		s.b.live--
		s.b.nodes.Free(slot, left)
		s.keys.Free(slot, left)
		s.values.Free(slot, left)
	}
}
