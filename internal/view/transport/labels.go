package transport

import (
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// clients are the attributes of clients that matter to the rules of a service: the labels that its rules match
// by, and the DestinationRules for it that select the clients.
type clients struct {
	labels mesh.Labels
	rules  traffic.SelectingRules
}

// ownPartKey names the part of one host at an address as an audience sees it that is narrower than all proxies.
type ownPartKey struct {
	Key
	host string
	// onlyInBase says that the host asks for the address in the base view only.
	onlyInBase bool
	options    exposure.ListenOptions
	marker     int64
}

// ownPart is the part of a host at an address as the proxies of a set see it. For clients with labels it is absent if none of their labels matters to the host.
func (q *Queries) ownPart(r *query.Reader, k ownPartKey) ([]Part, bool) {
	if k.onlyInBase || k.host == "" {
		return nil, false
	}
	view := q.scope.View(r, scope.HostInSet{Host: k.host, Set: k.Set()})
	of := clients{}
	if k.Labelled() {
		of.labels = q.traffic.RelevantLabels(r, view, k.Labels(), (*state.VirtualService).ConnectionLabels)
		if of.rules = q.traffic.RulesForHost(r, k.Rules(), k.host); of == (clients{}) {
			return nil, false
		}
	}
	return q.part.Get(r, k.partKey(view, of, k.options))
}

// partKey is the key of the part of a service for some clients.
func (k Key) partKey(view service.HostView, of clients, options exposure.ListenOptions) partKey {
	families, cluster := k.reach()
	return partKey{view, k.At, k.NotIntercepted, families, cluster, of, options, 0}
}

// forLabels is the plan for an address as clients with labels see it. differs is false if none of their labels matters there.
func (q *Queries) forLabels(r *query.Reader, k Key) (p *Plan, differs bool) {
	parts := q.ownParts.Get(r, k)
	if parts.Len() == 0 {
		return nil, false
	}
	instead := make(map[partID]Part, parts.Len())
	for _, part := range parts.All() {
		instead[part.id()] = part
	}
	k.Audience = k.Unlabelled()
	if p, ok := q.inSet(r, k, instead); ok {
		return p, true
	}
	return q.inBaseView(r, k.inBaseView(), instead), true
}
