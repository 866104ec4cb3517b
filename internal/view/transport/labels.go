package transport

import (
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// clients are the attributes of clients that matter to the rules of a service: the labels that its rules match
// by, and the DestinationRules for it that select the clients.
type clients struct {
	labels mesh.Labels
	rules  traffic.SelectingRules
}

// LabelledKey names an address in the view of the clients of a set that have labels which rules match by.
type LabelledKey struct {
	scope.LabelledClients
	NotIntercepted bool
	Families       mesh.Families
	Cluster        string
	At             exposure.Address
}

type labelledPartKey struct {
	LabelledKey
	host string
	// onlyInBase says that the host asks for the address in the base view only.
	onlyInBase bool
	options    exposure.ListenOptions
	marker     int64
}

// defineLabelled defines the parts of services for clients with labels. elem is the query for the part of a service.
func (q *Queries) defineLabelled(g *query.Graph, elem query.Query[partKey, []Part]) {
	named := query.Define(g, "labelledConnections", equalParts, func(r *query.Reader, k labelledPartKey) ([]Part, bool) {
		if k.host == "" || k.onlyInBase {
			return nil, false
		}
		view := q.scope.View(r, scope.HostInSet{Host: k.host, Set: k.Set})
		of := clients{
			q.traffic.RelevantLabels(r, view, k.Labels, (*state.VirtualService).ConnectionLabels), q.traffic.RulesForHost(r, k.Rules, k.host),
		}
		if of == (clients{}) {
			return nil, false
		}
		return elem.Get(r, partKey{view, k.At, k.NotIntercepted, k.Families, k.Cluster, of, k.options, 0})
	})
	q.labelledParts = query.Each(g, "labelledSharedConnections", func(r *query.Reader, k LabelledKey) omap.Map[exposure.Candidate, omap.Unit] {
		return Candidates(k.NotIntercepted, q.scope.LabelledIndex).Group(r, k.LabelledClients, k.At)
	}, named, func(k LabelledKey, c exposure.Candidate) labelledPartKey {
		return labelledPartKey{k, c.Host, c.Created == exposure.OnlyInBase, c.ListenOptions, marker(c)}
	})
}

// Labelled is the plan for an address as clients with labels see it. differs is false if none of their labels matters
// there.
func (q *Queries) Labelled(r *query.Reader, k LabelledKey) (p *Plan, differs bool) {
	parts := q.labelledParts.Get(r, k)
	if parts.Len() == 0 {
		return nil, false
	}
	instead := make(map[partID]Part, parts.Len())
	for _, part := range parts.All() {
		instead[part.id()] = part
	}
	if p, ok := q.plan(r, SetKey{k.Set, k.NotIntercepted, k.Families, k.Cluster, k.At}, instead); ok {
		return p, true
	}
	return q.planOfAll(r, BaseKey{k.NotIntercepted, k.Families, k.Cluster, k.At}, instead), true
}
