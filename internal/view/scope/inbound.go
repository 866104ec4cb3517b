package scope

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// InboundPool is what limits a sidecar's connections to the application at a port: what its Sidecar says, else what the
// DestinationRule for the service says; nil if neither says anything.
func (q *Queries) InboundPool(r *query.Reader, p proxy.InboundPort) *networking.ConnectionPoolSettings {
	if p.Limited != (api.Key{}) {
		if row, ok := q.tables.Sidecars.Get(r, p.Limited); ok {
			if pool := row.Limits(p.Number); pool != nil {
				return pool
			}
		}
	}
	if p.Host == "" {
		return nil
	}
	policy, _ := q.traffic.Policy.Get(r, service.View{Host: p.Host, Layer: q.Layer(r, p.Host, p.Namespace)})
	return policy.ForPort(nil, p.Port).ConnectionPool
}
