package class

import (
	"fmt"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/route"
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
		return slices.EqualFunc(a, b, state.Problems.Equal)
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
	list := make([]api.Problem, 0, len(row.Objects)+1)
	if len(row.Objects) == 0 { // a listener that all HTTP services of a port share is made of none of them
		list = append(list, api.Problem{
			Severity: api.Error, Field: what, Reason: fmt.Sprintf("proxy %s rejected %s and keeps what it had: %s", row.Proxy, what, row.Reason),
		})
	}
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

// Held is a rejection that still matters: the proxy would be given the same content again.
type Held struct {
	state.RejectionKey
	state.Rejection
}

// VirtualHost is the name of the virtual host, if only that one of a route configuration was rejected.
func (h Held) VirtualHost() string { return route.VirtualHostOf(h.Piece) }

// Held lists what a connected proxy rejected and does not get, by type and name.
func (q *Queries) Held(r *query.Reader, connection string) []Held {
	var list []Held
	c, _ := q.Class.Get(r, connection)
	s, ok := q.State.Get(r, c)
	if !ok {
		return nil
	}
	for k := range q.tables.RejectionKeys.Group(r, struct{}{}).All() {
		if k.Connection != connection {
			continue
		}
		if row, ok := q.tables.Rejections.Get(r, k); ok && contentOf(s, k) == row.Content {
			list = append(list, Held{k, row})
		}
	}
	return list
}
