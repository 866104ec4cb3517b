package class

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Trace is where a resource of a class comes from.
type Trace struct {
	// Layer says who shares it, Part is the name of the layer in the stack of its type.
	Layer Layer
	Part  string
	// Resource is what that layer has under the name; nil for a virtual host.
	Resource *resource.Resource
	// Leaves are the rows and groups it was made of, in the order they were read.
	Leaves []*query.Reason
}

// Trace finds what a resource, or one virtual host of it, is made of for the proxies of a class; false if the graph has
// not computed it. It is for the owner of the graph, between commits.
func (q *Queries) Trace(g *query.Graph, c proxy.Class, t resource.Type, name, piece string) (Trace, bool) {
	id, from, ok := q.yields(g, c, t, name, piece)
	if !ok {
		return Trace{}, false
	}
	trace := Trace{Layer: from.shared, Part: from.name, Leaves: g.Explain(id).Leaves()}
	if piece == "" {
		m, _ := from.of(g.Glance(), c)
		trace.Resource, _ = m.Get(omap.Name(name))
	}
	return trace, true
}

// yields finds the cell that yields a resource, or one virtual host of it, and the layer that shows the resource.
func (q *Queries) yields(g *query.Graph, c proxy.Class, t resource.Type, name, piece string) (id query.ID, from part, ok bool) {
	if piece == "" {
		return q.stacks[t].cell(g.Glance(), c, omap.Name(name))
	}
	labelled, _ := scope.LabelledOf(c)
	id, ok = q.routes.Cell(labelled, name, piece)
	if !ok && piece == name { // the configuration of a sniffed port is one virtual host, of the same name
		return q.stacks[t].cell(g.Glance(), c, omap.Name(name))
	}
	return id, part{name: "virtual hosts", shared: Scoped}, ok
}

// Origin lists the objects a resource, or one virtual host of it, is made of for the proxies of a class. It is for the
// owner of the graph, between commits.
func (q *Queries) Origin(g *query.Graph, c proxy.Class, t resource.Type, name, piece string) []api.Key {
	id, _, ok := q.yields(g, c, t, name, piece)
	if !ok {
		return nil
	}
	return Objects(g, id)
}

// Objects lists the objects that a cell was made of. It is for the owner of the graph, between commits.
func Objects(g *query.Graph, cell query.ID) []api.Key {
	var keys []api.Key
	for _, row := range g.Rows(cell) {
		if key, ok := row.(api.Key); ok {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, api.Key.Compare)
	return slices.Compact(keys)
}
