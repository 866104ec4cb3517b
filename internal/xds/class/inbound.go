package class

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/class/patching"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// InboundListeners are the listeners of a class for connections to the workload, whether or not a proxy of the class is connected.
func (q *Queries) InboundListeners(r *query.Reader, c proxy.Class) (list []*resource.Resource) {
	found, _ := q.listeners.Inbound.Get(r, q.inboundKeyOf(r, c))
	layers := resource.Layers{found}
	for _, l := range q.stacks[resource.Listener] {
		if patched, ok := l.layer(r, c); ok && l.effects != nil && l.contexts == patching.ContextsOf(networking.EnvoyFilter_SIDECAR_INBOUND) {
			layers = layers.On(patched)
		}
	}
	for l := range layers.All() {
		list = append(list, l)
	}
	return list
}
