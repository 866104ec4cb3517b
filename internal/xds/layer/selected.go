package layer

import (
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// Selection is the key of some hosts of a set, as a client sees them.
type Selection interface {
	comparable
	// In returns the set and the client.
	In() scope.ClientInSet
}

// DefineSelected defines the layer of the hosts that a key selects. It lies over no other layer. Hosts that look the same to all clients share their
// cells with the layer of the base view.
func DefineSelected[S Selection, M any, V query.Output](
	g *query.Graph, name string, h *Hosts[V], rules *traffic.Queries, sc *scope.Queries, t Translator[M, V], hosts func(r *query.Reader, k S) scope.Hosts,
) query.Collection[S, V] {
	one := query.Define(g, name, Equal[V], func(r *query.Reader, k clientHost) ([]V, bool) {
		at := HostForClient{sc.View(r, scope.HostInSet{Host: k.host, Set: k.Set}), k.Client}
		at.Client.Rules = rules.RulesForHost(r, k.Client.Rules, k.host)
		if t.DependsOnClient == nil || t.DependsOnClient(r, at) {
			list := t.at(r, at)
			return list, len(list) > 0
		}
		list, ok := h.at.Get(r, at.HostView)
		return list, ok
	})
	return query.Each(g, name+".all", hosts, one, func(k S, host omap.Name) clientHost { return clientHost{string(host), k.In()} })
}
