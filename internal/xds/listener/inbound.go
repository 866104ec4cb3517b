package listener

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Virtual names the listener that redirected outbound connections reach first.
type Virtual struct {
	Mode     proxy.Mode
	Outbound state.OutboundMode
}

func virtual(_ *query.Reader, k Virtual) (Map, bool) {
	if k.Mode == proxy.None {
		return Map{}, true
	}
	l := envoy.Listener(envoy.VirtualOutbound, envoy.Wildcard, envoy.OutboundPort, envoy.Outbound, true)
	l.UseOriginalDst = envoy.Bool(true)
	if k.Mode == proxy.Transparent {
		l.Transparent = envoy.Bool(true)
	}
	l.FilterChains = []*listenerv3.FilterChain{
		// What was dialled at the proxy's own port would come back to it for ever.
		envoy.Chain("virtualOutbound-blackhole", envoy.MatchPort(envoy.OutboundPort), envoy.TCPProxy(envoy.BlackHoleCluster, envoy.BlackHoleCluster)),
		envoy.Chain("virtualOutbound-catchall-tcp", nil, unknown(k.Outbound)),
	}
	return asMap(l), true
}

// Inbound names the listeners of what a workload serves.
type Inbound struct {
	Ports string // see service.ParseInbound
	Mode  proxy.Mode
	Bind  string // where nothing redirects: the address to bind
}

func inbound(_ *query.Reader, k Inbound) (Map, bool) {
	ports := service.ParseInbound(k.Ports)
	if k.Mode == proxy.None {
		var list []*listenerv3.Listener
		for _, p := range ports {
			if reserved(true, k.Bind, p.Number) {
				continue
			}
			l := envoy.Listener(envoy.ListenerName(k.Bind, p.Number), k.Bind, p.Number, envoy.Inbound, true)
			l.FilterChains = chains(p, nil)
			if p.Protocol.Sniffed() {
				envoy.Sniff(l)
			}
			list = append(list, l)
		}
		return asMap(list...), true
	}
	l := envoy.Listener(envoy.VirtualInbound, envoy.Wildcard, envoy.InboundPort, envoy.Inbound, true)
	envoy.RestoreDestination(l)
	if k.Mode == proxy.Transparent {
		l.Transparent = envoy.Bool(true)
	}
	l.FilterChains = []*listenerv3.FilterChain{
		envoy.Chain("virtualInbound-blackhole", envoy.MatchPort(envoy.InboundPort), envoy.TCPProxy(envoy.BlackHoleCluster, envoy.BlackHoleCluster)),
	}
	var sniffed []uint32
	for _, p := range ports {
		if p.Number == envoy.InboundPort {
			continue
		}
		l.FilterChains = append(l.FilterChains, chains(p, envoy.MatchPort(p.Number))...)
		if p.Protocol.Sniffed() {
			sniffed = append(sniffed, p.Number)
		}
	}
	if len(sniffed) > 0 {
		envoy.Sniff(l, sniffed...)
	}
	l.DefaultFilterChain = envoy.Chain("virtualInbound", nil, envoy.TCPProxy(envoy.InboundPassthroughCluster, envoy.InboundPassthroughCluster))
	return asMap(l), true
}

// chains serve one port; match is what tells the port from others, nil if the listener is the port's own.
func chains(p service.InboundPort, match *listenerv3.FilterChainMatch) []*listenerv3.FilterChain {
	cluster := envoy.InboundCluster(p.Number)
	name := envoy.ListenerName(envoy.Wildcard, p.Number)
	tcp := envoy.Chain(name, match, envoy.TCPProxy(cluster, cluster))
	if !p.Protocol.IsHTTP() && !p.Protocol.Sniffed() {
		return []*listenerv3.FilterChain{tcp}
	}
	http := envoy.Chain(name, match, envoy.HTTPTo("inbound_"+name, routes(p, cluster)))
	if !p.Protocol.Sniffed() {
		return []*listenerv3.FilterChain{http}
	}
	http.FilterChainMatch = envoy.MatchHTTP(false)
	http.FilterChainMatch.DestinationPort = match.GetDestinationPort()
	return []*listenerv3.FilterChain{http, tcp}
}

func routes(p service.InboundPort, cluster string) *routev3.RouteConfiguration {
	c := envoy.Routes(cluster)
	c.IgnorePortInHostMatching = false
	host := envoy.VirtualHost("inbound|http|"+envoy.RouteName(p.Port), []string{"*"},
		envoy.Route("default", envoy.MatchAll(), envoy.To(cluster), envoy.VirtualHostName(p.Host, p.Port)+"/*"))
	host.IncludeRequestAttemptCount = false
	c.VirtualHosts = []*routev3.VirtualHost{host}
	return c
}

func asMap(list ...*listenerv3.Listener) Map {
	changes := make([]omap.Change[omap.Name, *resource.Resource], 0, len(list))
	for _, l := range list {
		changes = append(changes, omap.Put(omap.Name(l.Name), resource.New(resource.Listener, l.Name, l)))
	}
	return Map{}.With(changes...)
}
