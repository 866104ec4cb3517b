package class

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/rejection"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/state/gatewayrows"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Trace says where a resource of a class comes from.
type Trace struct {
	// SharedBy says which proxies share the resource, and Layer is the name of the layer that shows it.
	SharedBy Sharing
	Layer    string
	// Resource is the resource in that layer. It is nil for a virtual host.
	Resource *resource.Resource
	// Leaves are the rows and index groups that it was made of, in the order of reading.
	Leaves []*query.Reason
}

// Trace returns what a resource, or one virtual host of it, is made of for the proxies of a class. ok is false if the
// graph has not computed it. Only the owner of the graph may call it, between commits.
func (q *Queries) Trace(g *query.Graph, c proxy.Class, t resource.Type, name, piece string) (Trace, bool) {
	cells, from := q.findCells(g, c, t, name, piece)
	if len(cells) == 0 {
		return Trace{}, false
	}
	trace := Trace{SharedBy: from.sharedBy, Layer: from.name}
	for _, id := range cells {
		trace.Leaves = append(trace.Leaves, g.Explain(id).Leaves()...)
	}
	if slices.ContainsFunc(trace.Leaves, selects) {
		trace.SharedBy = min(trace.SharedBy, SharedByClients)
	}
	if piece == "" {
		m, _ := from.layer(g.Glance(), c)
		trace.Resource, _ = m.Get(omap.Name(name))
	}
	return trace, true
}

// selects reports whether a row is of an object that counts for the proxies that it selects, or for the proxies of its namespace.
func selects(leaf *query.Reason) bool {
	k, ok := leaf.Row.(api.Key)
	return ok && !leaf.Absent && slices.Contains([]string{api.KindEnvoyFilter, api.KindTelemetry, api.KindWasmPlugin, api.KindTrafficExtension}, k.Kind)
}

// findCells returns the cells that yield a resource, or one virtual host of it, and the layer that shows the resource. There are two for a
// patched resource: the cell of the patched resource, then the cell of the unpatched one. There is none if the graph has not computed it.
func (q *Queries) findCells(g *query.Graph, c proxy.Class, t resource.Type, name, piece string) (cells []query.ID, from stackLayer) {
	r := g.Glance()
	if piece == "" {
		return q.stacks[t].findCells(r, c, omap.Name(name))
	}
	add := func(id query.ID, ok bool, layer stackLayer) {
		if ok && len(cells) == 0 {
			from = layer
		}
		if ok {
			cells = append(cells, id)
		}
	}
	for _, l := range q.stacks[t] {
		if l.host != nil && len(cells) == 0 {
			id, ok := l.host(r, c, omap.Name(name), omap.Name(piece))
			add(id, ok, l)
		}
	}
	if c.Gateway {
		id, ok := q.routes.GatewayHostCell(proxiesOf(c), name, piece)
		add(id, ok, stackLayer{name: "virtual hosts", sharedBy: SharedByWorkload})
		return cells, from
	}
	id, ok := q.routes.VirtualHostCell(scope.AudienceOf(c), name, piece)
	if !ok && piece == name && len(cells) == 0 { // the configuration of a dedicated port has one virtual host of the same name
		return q.stacks[t].findCells(r, c, omap.Name(name))
	}
	add(id, ok, stackLayer{name: "virtual hosts", sharedBy: SharedByScope})
	return cells, from
}

// Origin lists the objects that a resource, or one virtual host of it, is made of for the proxies of a class. Only the
// owner of the graph may call it, between commits.
func (q *Queries) Origin(g *query.Graph, c proxy.Class, t resource.Type, name, piece string) []api.Key {
	cells, _ := q.findCells(g, c, t, name, piece)
	return Objects(g, cells...)
}

// Finding finds out what rejected content of a class is made of, and which object has what Envoy's error text is about. Only the owner of
// the graph may call it, between commits.
func (q *Queries) Finding(g *query.Graph, c proxy.Class, what connected.RejectedContent, reason string) rejection.Finding {
	var objects []*api.Object
	keys := q.Origin(g, c, resource.Type(what.Type), what.Name, what.Piece)
	for _, k := range keys {
		if o, ok := q.tables.Objects.Peek(k); ok {
			objects = append(objects, o)
		}
	}
	f := rejection.Find(reason, q.content(g.Glance(), c, what), objects)
	f.Objects = keys
	return f
}

// content decodes rejected content; nil if the class has other content now.
func (q *Queries) content(r *query.Reader, c proxy.Class, what connected.RejectedContent) proto.Message {
	s, ok := q.State.Get(r, c)
	if !ok || contentOf(s, what.Rejectable) != what.Content {
		return nil
	}
	now, _ := s.Get(resource.Type(what.Type), what.Name)
	m := now.Proto
	if p, ok := now.Pieces().Get(omap.Name(what.Piece)); what.Piece != "" && ok {
		m = p.Proto
	}
	decoded, err := m()
	if err != nil {
		return nil
	}
	return decoded
}

// Objects lists the objects that cells were made of, sorted. Only the owner of the graph may call it, between commits.
func Objects(g *query.Graph, cells ...query.ID) []api.Key {
	var keys []api.Key
	for _, cell := range cells {
		for _, row := range g.Rows(cell) {
			switch key := row.(type) {
			case api.Key:
				keys = append(keys, key)
			case gatewayrows.ServerKey:
				keys = append(keys, key.Gateway)
			}
		}
	}
	slices.SortFunc(keys, api.Key.Compare)
	return slices.Compact(keys)
}
