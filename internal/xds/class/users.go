package class

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Users reports which classes and resources were made with some rows.
type Users struct {
	queries *Queries
	graph   *query.Graph
	leaves  []query.ID
	classes map[proxy.Class]struct{}
	// cells are those made with the rows; nil until a resource is asked for, because most callers need classes only.
	cells map[query.ID]struct{}
	// first and answers are what Demands has found out.
	first   map[proxy.Class]bool
	answers map[demandKey]bool
}

// UsersOf returns the users of some rows. Only the owner of the graph may call it and use the result, between the same two commits.
func (q *Queries) UsersOf(g *query.Graph, leaves []query.ID) *Users {
	u := &Users{queries: q, graph: g, leaves: leaves, classes: map[proxy.Class]struct{}{}, first: map[proxy.Class]bool{}, answers: map[demandKey]bool{}}
	for cell := range g.Dependents(leaves) {
		if c, ok := q.State.KeyOf(cell); ok {
			u.classes[c] = struct{}{}
		}
	}
	return u
}

// Class reports whether something that a class has was made with the rows.
func (u *Users) Class(c proxy.Class) bool {
	_, ok := u.classes[c]
	return ok
}

// Resource reports whether a resource of a class, to which a connection belongs, was made with the rows. What a proxy serves itself is part
// of its class, which is no read of the resources for it. So they count as made with the rows if the class of the connection was.
func (u *Users) Resource(connection string, c proxy.Class, t resource.Type, name string) bool {
	cells, from := u.queries.findCells(u.graph, c, t, name, "")
	if len(cells) == 0 || slices.ContainsFunc(cells, u.made) {
		return len(cells) > 0
	}
	own, ok := u.queries.Class.Cell(connection)
	return ok && from.sharedBy == SharedByWorkload && u.made(own)
}

// made reports whether a cell was made with the rows.
func (u *Users) made(cell query.ID) bool {
	if u.cells == nil {
		u.cells = map[query.ID]struct{}{}
		for of := range u.graph.Dependents(u.leaves) {
			u.cells[of] = struct{}{}
		}
	}
	_, ok := u.cells[cell]
	return ok
}
