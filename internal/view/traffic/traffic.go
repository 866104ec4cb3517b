// Package traffic answers which rules apply to a host as a view sees it: which VirtualServices, and which traffic policy.
//
// It owns the precedence of VirtualServices and DestinationRules, the merge of delegates, and the order in which
// localities are preferred. Rules are returned as messages of the API; translators decide what their fields become. The
// package starts no goroutines.
package traffic

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// maxRules bounds how many objects about one host are read.
const maxRules = 40

// MaxTargets bounds how many destination hosts of the rules for one host are looked up.
const MaxTargets = 120

// Queries answer questions about rules.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	// Routes are the VirtualServices for a view's host in the order of precedence. A later one counts only if no rule of
	// those before it applies to the client. It is absent if there are none.
	Routes query.Query[service.HostView, []*state.VirtualService]
	// Merged is a VirtualService that delegates, with the rules of its delegates in place.
	Merged query.Query[api.Key, *MergedRoutes]
	// Policy is the traffic policy for a view's service. It is absent if there is no DestinationRule.
	Policy query.Query[service.HostView, *Policy]
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, s *service.Queries) *Queries {
	q := &Queries{tables: t, services: s}
	same := func(a, b []*state.VirtualService) bool {
		return slices.EqualFunc(a, b, func(a, b *state.VirtualService) bool { return a.Object == b.Object && a.Hash == b.Hash })
	}
	q.Merged = query.Define(g, "mergedRules", (*MergedRoutes).equal, q.merged)
	q.Routes = query.Define(g, "routes", same, q.routes)
	q.Policy = query.Define(g, "policy", (*Policy).Equal, q.policy)
	return q
}

func (q *Queries) routes(r *query.Reader, v service.HostView) ([]*state.VirtualService, bool) {
	var out []*state.VirtualService
	for host := range mesh.NarrowestFirst(v.Host) {
		claims := q.tables.ByHost.Group(r, host)
		for c := range visibleRoutes(claims, v.Viewer) {
			if len(out) == maxRules {
				break
			}
			if v.ExcludedRoutes.Has(c.Object()) {
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

// RelevantLabels returns the given labels that the rules for a view's host match by. of returns the labels that an
// object matches by.
func (q *Queries) RelevantLabels(r *query.Reader, v service.HostView, labels mesh.Labels, of func(*state.VirtualService) []mesh.Label) mesh.Labels {
	if labels.Empty() {
		return labels
	}
	objects, _ := q.Routes.Get(r, v)
	var named []mesh.Label
	for _, vs := range objects {
		named = append(named, of(vs)...)
	}
	return intern.Keep(labels, func(l mesh.Label) bool { return slices.Contains(named, l) })
}

// visibleRoutes yields the route claims that a viewer sees, in the order of precedence: first the claims that the viewing
// namespace keeps to itself, then claims that others export to it by name, then claims exported to all; each group by age.
func visibleRoutes(claims omap.Map[claim.Claim, omap.Unit], layer string) func(yield func(claim.Claim) bool) {
	return func(yield func(claim.Claim) bool) {
		if layer != "" {
			for _, own := range []bool{true, false} {
				for c := range claims.All() {
					if c.Kind == claim.Route && c.Layer == layer && (c.Namespace == layer) == own && !yield(c) {
						return
					}
				}
			}
		}
		for c := range claims.All() {
			if c.Kind == claim.Route && c.Layer == "" && !yield(c) {
				return
			}
		}
	}
}
