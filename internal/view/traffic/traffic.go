// Package traffic answers which rules hold for a host as a view sees it: whose routes, and what policy.
//
// It owns the precedence of VirtualServices and DestinationRules. Rules are given as the API's messages: what their
// fields become is up to the translators. The package starts no goroutines and must not import xds or Envoy's protos.
package traffic

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// maxRules bounds how many objects about one host are looked at.
const maxRules = 40

// MaxTargets bounds how many hosts the rules for one host may lead to before no more is asked about them.
const MaxTargets = 120

// Queries answer questions about rules.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	// Routes are the VirtualServices for a view's host, the one that counts first; a later one counts where all rules
	// of those before it are for others. Absent if there are none.
	Routes *query.Query[service.View, []*state.VirtualService]
	// Merged are the rules of a VirtualService that delegates, with those of its delegates.
	Merged *query.Query[api.Key, *Merged]
	// Policy is the traffic policy for a view's service; absent if nobody wrote one.
	Policy *query.Query[service.View, *Policy]
}

// Define adds the queries.
func Define(g *query.Graph, t *state.Tables, s *service.Queries) *Queries {
	q := &Queries{tables: t, services: s}
	same := func(a, b []*state.VirtualService) bool {
		return slices.EqualFunc(a, b, func(a, b *state.VirtualService) bool { return a.Object == b.Object && a.Hash == b.Hash })
	}
	q.Merged = query.Define(g, "mergedRules", (*Merged).equal, q.merged)
	q.Routes = query.Define(g, "routes", same, q.routes)
	q.Policy = query.Define(g, "policy", (*Policy).Equal, q.policy)
	return q
}

func (q *Queries) routes(r *query.Reader, v service.View) ([]*state.VirtualService, bool) {
	var out []*state.VirtualService
	for host := range mesh.NarrowestFirst(v.Host) {
		claims := q.tables.ByHost.Group(r, host)
		for c := range inOrder(claims, v.Layer) {
			if len(out) == maxRules {
				break
			}
			if v.Barred.Has(c.Object()) {
				continue
			}
			vs, ok := q.tables.VirtualServices.Get(r, c.Object())
			if !ok {
				continue
			}
			if vs.Delegates() {
				if m, ok := q.Merged.Get(r, vs.Object); ok {
					vs = m.VirtualService
				}
			}
			out = append(out, vs)
		}
	}
	return out, len(out) > 0
}

// Named are those of some labels that the rules for a view's host name. of gives the labels that count in an object.
func (q *Queries) Named(r *query.Reader, v service.View, labels mesh.Labels, of func(*state.VirtualService) []mesh.Label) mesh.Labels {
	if labels.Empty() {
		return labels
	}
	objects, _ := q.Routes.Get(r, v)
	var named []mesh.Label
	for _, vs := range objects {
		named = append(named, of(vs)...)
	}
	return labels.Keep(func(l mesh.Label) bool { return slices.Contains(named, l) })
}

// inOrder yields the route claims a layer sees: the namespace's own that are not for all, then those that others export
// to it by name, then those for all, each by age.
func inOrder(claims omap.Map[state.Claim, omap.Unit], layer string) func(yield func(state.Claim) bool) {
	return func(yield func(state.Claim) bool) {
		if layer != "" {
			for _, own := range []bool{true, false} {
				for c := range claims.All() {
					if c.Kind == state.RouteClaim && c.Layer == layer && (c.Namespace == layer) == own && !yield(c) {
						return
					}
				}
			}
		}
		for c := range claims.All() {
			if c.Kind == state.RouteClaim && c.Layer == "" && !yield(c) {
				return
			}
		}
	}
}
