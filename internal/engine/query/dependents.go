package query

import (
	"iter"
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// Dependents yields the cells that are made of some rows or groups, directly or through other cells, each once and in
// no order. It does not follow indexes, which are Groups and Layers: each of their readers reads one part of them, and
// most of these parts have nothing to do with the rows. It finds only cells that exist, which are the cells that roots
// need. It is for the owner of the graph, between commits.
func (g *Graph) Dependents(leaves []ID) iter.Seq[ID] {
	return func(yield func(ID) bool) {
		seen := map[ID]struct{}{}
		for next := slices.Clone(leaves); len(next) > 0; {
			id := next[len(next)-1]
			next = next[:len(next)-1]
			users := g.users(id)
			if users == nil {
				continue
			}
			for u := range users.all() {
				if _, ok := seen[u]; ok || g.isIndex(u) {
					continue
				}
				seen[u] = struct{}{}
				if !yield(u) {
					return
				}
				next = append(next, u)
			}
		}
	}
}

// isIndex reports whether a cell is one of Groups or Layers.
func (g *Graph) isIndex(cell ID) bool {
	x, ok := g.spaces[cell.Space()].(interface{ isIndex() bool })
	return ok && x.isIndex()
}

func (x *groups[C, G, M]) isIndex() bool { return true }
func (x *layers[C, K, V]) isIndex() bool { return true }

func (q *memo[K, V]) KeyOf(id ID) (k K, ok bool) {
	if id.Leaf() || id.Space() != q.b.space {
		return k, false
	}
	return q.key(id.Slot()), true
}

// Changed returns the revision that last changed a row; 0 if no commit did.
func (g *Graph) Changed(row store.ID) store.Revision { return g.db.Describe(row).Changed }
