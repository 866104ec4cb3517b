package listener

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// HTTPProxiesKey names the HTTP proxies for proxies with a Sidecar (the zero key means none).
type HTTPProxiesKey struct {
	Sidecar api.Key
	Variant
}

func (q *Queries) proxies(r *query.Reader, k HTTPProxiesKey) (Map, bool) {
	var list []*listenerv3.Listener
	limits := q.tables.Connections(r)
	for _, p := range q.scope.HTTPProxies(r, k.Sidecar) {
		bound := p.Bound || k.NotIntercepted
		if q.tables.CapturePorts(r).Reserved(p.Port, bound) {
			continue
		}
		at := exposure.Address{IP: p.IP, Port: p.Port}
		if p.Number == 0 { // the mesh's is at the loopback address
			at.IP = envoy.LoopbackOf(k.Families)
		}
		name, ip := k.name(at)
		l, isUnix := atSocket(p.IP)
		if isUnix {
			name = l.Name
		} else {
			l = envoy.Listener(name, ip, p.Port, envoy.Outbound, bound)
			if k.Families == mesh.DualStack && (p.Number == 0 || p.IP == "") {
				envoy.AddFamily(l)
			}
			if bound && !k.NotIntercepted {
				envoy.BindOwnSocket(l)
			}
		}
		if k.Balanced {
			envoy.BalanceExactly(l)
		}
		options := httpOptions(q.tables.HTTPSettings(r), limits, k.HTTP10, "")
		options.Sessions = q.tables.Sessions()
		options.DynamicClusters, options.Families = true, k.Families // Envoy may have to resolve the host of any request
		added := filters{added: q.added.Filters(r, k.Extensions)}
		options.IdleTimeout, options.First = k.IdleTimeout, added.http(p.Port)
		http := append(added.network(p.Port), envoy.HTTPWithRDS("outbound_"+name, envoy.ProxyRouteName(p.Number), options))
		l.FilterChains = []*listenerv3.FilterChain{envoy.Chain("", nil, http...)}
		list = append(list, l)
	}
	limitBuffers(limits, list...)
	q.telemetry.Settings(r, k.Telemetry).Apply(list...)
	return asMap(list...), true
}
