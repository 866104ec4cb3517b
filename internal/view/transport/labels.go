package transport

import (
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// callers is what of a client may matter to what a service wants: the labels that its rules name, and the DestinationRules
// about it that select the client.
type callers struct {
	labels mesh.Labels
	rules  traffic.Rules
}

// For names an address as those callers of a set see it who have labels that rules name.
type For struct {
	scope.Labelled
	Direct bool
	At     service.Address
}

type claimFor struct {
	For
	host   string
	gone   bool // what it wants is what it looks like to others
	terms  service.Terms
	marker int64
}

// defineLabelled adds what services want of callers with labels; elem is what they want of anybody.
func (q *Queries) defineLabelled(g *query.Graph, elem *query.Query[claim, []Part]) {
	named := query.Define(g, "labelledConnections", equalParts, func(r *query.Reader, k claimFor) ([]Part, bool) {
		if k.host == "" || k.gone {
			return nil, false
		}
		view := q.scope.View(r, scope.HostIn{Host: k.host, Set: k.Set})
		of := callers{
			q.traffic.Named(r, view, k.Labels, (*state.VirtualService).ConnectionLabels), q.traffic.Touching(r, k.Rules, k.host),
		}
		if of == (callers{}) {
			return nil, false
		}
		return elem.Get(r, claim{view, k.At, k.Direct, of, k.terms, 0})
	})
	q.labelledParts = query.Each(g, "labelledSharedConnections", func(r *query.Reader, k For) omap.Map[service.Claimant, omap.Unit] {
		return Taken(k.Direct, q.scope.Labelled).Group(r, k.Labelled, k.At)
	}, named, func(k For, c service.Claimant) claimFor {
		return claimFor{k, c.Host, c.Created == service.Never, c.Terms, marker(c)}
	})
}

// Labelled is the plan for an address as callers with labels see it. differs is false where none of these matters.
func (q *Queries) Labelled(r *query.Reader, k For) (p *Plan, differs bool) {
	parts := q.labelledParts.Get(r, k)
	if parts.Len() == 0 {
		return nil, false
	}
	instead := make(map[claimed]Part, parts.Len())
	for _, part := range parts.All() {
		instead[part.claimed()] = part
	}
	if p, ok := q.plan(r, In{k.Set, k.Direct, k.At}, instead); ok {
		return p, true
	}
	return q.planOfAll(r, All{k.Direct, k.At}, instead), true
}
