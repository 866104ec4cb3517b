package scope

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// InboundPool is the connection pool for connections from a sidecar to its application at a port: the pool in its
// Sidecar, else in the DestinationRule for the service. It is nil if neither has one.
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

// InboundMTLS are the modes of the workloads of a class. Proxies without a certificate take plain text where they would take both.
func (q *Queries) InboundMTLS(r *query.Reader, c proxy.Class) mesh.MTLS {
	modes := c.MTLS.Within(q.services.Peers.Wider(r, c.Namespace))
	if c.NoCertificate {
		return modes.WithoutCertificate()
	}
	return modes
}

// ServerTLS are the settings of a port for TLS of clients that are not in the mesh; nil if there are none.
func (q *Queries) ServerTLS(r *query.Reader, p proxy.InboundPort) *networking.ServerTLSSettings {
	if p.TLS == (api.Key{}) {
		return nil
	}
	row, ok := q.tables.Sidecars.Get(r, p.TLS)
	if !ok {
		return nil
	}
	return row.ServerTLS(p.Number)
}
