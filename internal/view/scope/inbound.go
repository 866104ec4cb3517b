package scope

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// InboundPool is the connection pool for connections from a sidecar to its application at a port: that of its Sidecar,
// else that of the DestinationRule for the service. It is nil if neither has one.
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
	policy, _ := q.traffic.Policy.Get(r, service.HostView{Host: p.Host, Viewer: q.Viewer(r, p.Host, p.Namespace)})
	return policy.ForPort(nil, p.Port).ConnectionPool
}
