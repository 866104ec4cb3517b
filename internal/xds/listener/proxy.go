package listener

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// Proxies names the HTTP proxies of a scope: those of a Sidecar, which may be zero, and the mesh's.
type Proxies struct {
	Sidecar api.Key
	Shape
}

func (q *Queries) proxies(r *query.Reader, k Proxies) (Map, bool) {
	var list []*listenerv3.Listener
	for _, p := range q.scope.HTTPProxies(r, k.Sidecar) {
		bound := p.Bound || k.Direct
		if mesh.Reserved(p.Port, bound) {
			continue
		}
		name, ip := name(k.Direct, service.Address{IP: p.IP, Port: p.Port})
		l := envoy.Listener(name, ip, p.Port, envoy.Outbound, bound)
		options := httpOptions(q.tables.HTTPSettings(r), k.HTTP10, "")
		options.ByName = true // any of its hosts may be resolved for each request
		http := envoy.HTTPByName("outbound_"+name, envoy.ProxyRouteName(p.Number), options)
		l.FilterChains = []*listenerv3.FilterChain{envoy.Chain("", nil, http)}
		list = append(list, l)
	}
	logAccess(q.accessLog(r, k.DefaultLog), list...)
	return asMap(list...), true
}
