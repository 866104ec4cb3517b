package class

import (
	"fmt"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/xds/listener"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// defineProblems adds what proxies rejected to what is wrong with objects.
func (q *Queries) defineProblems(g *query.Graph, found *query.Query[All, []state.Problems]) {
	elem := query.Define(g, "rejected", slices.Equal[[]api.Problem], q.rejected)
	rejected := query.Each(g, "rejections",
		func(r *query.Reader, _ All) omap.Map[state.RejectionKey, omap.Unit] {
			return q.tables.RejectionKeys.Group(r, struct{}{})
		},
		elem, func(_ All, k state.RejectionKey) state.RejectionKey { return k })
	q.Problems = query.Define(g, "allProblems", func(a, b []state.Problems) bool {
		return slices.EqualFunc(a, b, func(a, b state.Problems) bool { return a.Hash() == b.Hash() })
	}, func(r *query.Reader, all All) ([]state.Problems, bool) {
		sets, _ := found.Get(r, all)
		return append(slices.Clip(sets), rejected.Get(r, all)), true
	})
}

// rejected tells about one rejection, as long as the proxy would still be given what it rejected.
func (q *Queries) rejected(r *query.Reader, k state.RejectionKey) ([]api.Problem, bool) {
	row, _ := q.tables.Rejections.Get(r, k)
	c, connected := q.Class.Get(r, k.Connection)
	if !connected {
		return nil, false
	}
	s, _ := q.State.Get(r, c)
	if contentOf(s, k) != row.Content {
		return nil, false
	}
	what := fmt.Sprintf("%v %q", resource.Type(k.Type), k.Name)
	if k.Piece != "" {
		what = fmt.Sprintf("a virtual host of %s", what)
	}
	list := make([]api.Problem, 0, len(row.Objects))
	for _, o := range row.Objects {
		list = append(list, api.Problem{
			Object: o, Severity: api.Error, Field: what,
			Reason: fmt.Sprintf("proxy %s rejected %s, which is made of this object, and keeps what it had: %s", row.Proxy, what, row.Reason),
		})
	}
	return list, true
}

func contentOf(s *resource.State, k state.RejectionKey) omap.Hash {
	now, ok := s.Get(resource.Type(k.Type), k.Name)
	if !ok {
		return omap.Hash{}
	}
	if k.Piece == "" {
		return now.ContentHash()
	}
	if p, ok := now.Pieces().Get(omap.Name(k.Piece)); ok {
		return p.ContentHash()
	}
	return omap.Hash{}
}

// Origin lists the objects a resource, or one virtual host of it, is made of for the proxies of a class. It is for the
// owner of the graph, between commits.
func (q *Queries) Origin(g *query.Graph, c proxy.Class, t resource.Type, name, piece string) []api.Key {
	id, ok := q.cell(c, t, omap.Name(name))
	if piece != "" {
		id, ok = q.routes.Cell(scope.SetOf(c), name, piece)
	}
	if !ok {
		return nil
	}
	var keys []api.Key
	for _, leaf := range g.Explain(id).Leaves() {
		if key, ok := leaf.Row.(api.Key); ok && !leaf.Absent && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, api.Key.Compare)
	return keys
}

// cell finds the element that yields a resource, in the layer that shows it.
func (q *Queries) cell(c proxy.Class, t resource.Type, name omap.Name) (id query.ID, ok bool) {
	set, direct := scope.SetOf(c), c.Mode == proxy.None
	switch t {
	case resource.Cluster:
		if id, ok = q.clusters.Scoped.Element(set.Plain(), name); !ok {
			id, ok = q.clusters.Base.Element(service.All{}, name)
		}
	case resource.Endpoint:
		if id, ok = q.endpoints.Scoped.Element(set.Plain(), name); !ok {
			id, ok = q.endpoints.Base.Element(service.All{}, name)
		}
	case resource.Listener:
		if id, ok = q.listeners.Scoped.Element(listener.In{Set: set, Direct: direct}, name); !ok {
			id, ok = q.listeners.Base.Element(listener.All{Direct: direct}, name)
		}
	case resource.Route:
		if id, ok = q.routes.Scoped.Element(set, name); !ok {
			id, ok = q.routes.Base.Element(service.All{}, name)
		}
	}
	return id, ok
}
