package query

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// ID identifies a cell, row or group.
type ID = store.ID

// Reason explains a result: one cell, row or group, with the reasons for each of its reads.
type Reason struct {
	Query   string // name of the query, table or index
	Key     string
	Changed store.Revision // the commit that last changed it
	Failed  bool           // the cell's last run panicked; its value is from an earlier run
	Absent  bool           // the row does not exist, the group is empty, or the query has no result
	Reads   []*Reason      // empty for rows and groups
	Row     any            // the key of a row or group; nil for cells
	Role    string         // of a row; see store.Table.SetRole
}

// Explain returns the dependencies of the cell, down to the rows. A cell that is reached twice has one Reason. It is
// for the owner of the graph, between commits.
func (g *Graph) Explain(id ID) *Reason { return g.explain(id, map[ID]*Reason{}) }

func (g *Graph) explain(id ID, seen map[ID]*Reason) *Reason {
	if r := seen[id]; r != nil {
		return r
	}
	if id.Leaf() {
		leaf := g.db.Describe(id)
		r := &Reason{Query: leaf.Space, Key: fmt.Sprint(leaf.Key), Changed: leaf.Changed, Absent: !leaf.Present, Row: leaf.Key, Role: leaf.Role}
		seen[id] = r
		return r
	}
	query, key := g.name(id)
	n := g.nodeOf(id)
	r := &Reason{
		Query: query, Key: key, Changed: n.changed,
		Failed: n.flags&failed != 0, Absent: n.flags&present == 0,
	}
	seen[id] = r
	for _, d := range n.reads {
		r.Reads = append(r.Reads, g.explain(d, seen))
	}
	return r
}

// Leaves returns the rows and groups of an explanation, each once, in the order in which they were read.
func (r *Reason) Leaves() []*Reason {
	var leaves []*Reason
	seen := map[*Reason]bool{}
	var walk func(r *Reason)
	walk = func(r *Reason) {
		if seen[r] {
			return
		}
		seen[r] = true
		if r.Row != nil {
			leaves = append(leaves, r)
		}
		for _, d := range r.Reads {
			walk(d)
		}
	}
	walk(r)
	return leaves
}

func (q *memo[K, V]) Cell(k K) (ID, bool) {
	c, n, ok := q.find(k)
	return q.b.id(n), ok && c.flags&ready != 0
}
