package listener

import (
	"cmp"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// inboundServer is what an inbound listener calls itself in responses, unless the mesh says otherwise.
const inboundServer = "istio-envoy"

// Virtual names the listener that redirected outbound connections reach first.
type Virtual struct {
	Mode     proxy.Mode
	Outbound state.Outbound
	HTTP10   bool
	// DefaultLog: the access log has its default format.
	DefaultLog bool
}

// VirtualOf names that of a class, whose traffic for destinations nobody declared is handled as outbound says.
func VirtualOf(c proxy.Class, outbound state.Outbound) Virtual {
	return Virtual{Mode: c.Mode, Outbound: outbound, HTTP10: c.HTTP10, DefaultLog: c.DefaultLog}
}

func (q *Queries) virtual(r *query.Reader, k Virtual) (Map, bool) {
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
	}
	catchAll := envoy.Chain("virtualOutbound-catchall-tcp", nil, unknown(k.Outbound))
	if k.Outbound.Mode != state.ByName {
		l.FilterChains = append(l.FilterChains, catchAll)
		logAccess(q.accessLog(r, k.DefaultLog), l)
		return asMap(l), true
	}
	l.DefaultFilterChain = catchAll
	envoy.SniffHTTP(l)
	envoy.DetectWithin(l, q.tables.DetectionTimeout(r))
	options := httpOptions(q.tables.HTTPSettings(r), k.HTTP10, "")
	options.ByName = true
	routes := envoy.Routes(envoy.AllowAnyByName)
	host := envoy.UnknownByName()
	host.IncludeRequestAttemptCount = !q.tables.RouteSettings(r).HideAttempts
	routes.VirtualHosts = []*routev3.VirtualHost{host}
	l.FilterChains = append(l.FilterChains, envoy.Chain("virtualOutbound-catchall-http", envoy.MatchHTTP(k.HTTP10),
		envoy.HTTPTo(envoy.DynamicDNSCluster, routes, options)))
	logAccess(q.accessLog(r, k.DefaultLog), l)
	return asMap(l), true
}

// Inbound names the listeners of what a workload serves.
type Inbound struct {
	Ports  intern.List[proxy.InboundPort]
	Mode   proxy.Mode
	Bind   string // where nothing redirects: the address to bind
	HTTP10 bool
	// DefaultLog: the access log has its default format.
	DefaultLog bool
	Idle       time.Duration // how long a connection may say nothing; 0: as Envoy has it
}

// InboundOf names those of a class.
func InboundOf(c proxy.Class) Inbound {
	return Inbound{Ports: c.Inbound, Mode: c.Mode, Bind: c.Bind, HTTP10: c.HTTP10, DefaultLog: c.DefaultLog, Idle: c.Idle}
}

// inboundSide is what the listeners of a workload are made with.
type inboundSide struct {
	Inbound
	http envoy.HTTPOptions
	wait time.Duration // for the first bytes
	// conduct is how connections that are not HTTP are carried to the application at a port.
	conduct func(proxy.InboundPort) envoy.TCP
}

func (q *Queries) inbound(r *query.Reader, k Inbound) (Map, bool) {
	side := inboundSide{
		Inbound: k, http: httpOptions(q.tables.HTTPSettings(r), k.HTTP10, inboundServer), wait: q.tables.DetectionTimeout(r),
		conduct: func(p proxy.InboundPort) envoy.TCP { return q.inboundConduct(r, p, k.Idle) },
	}
	side.http.Idle = k.Idle
	var list []*listenerv3.Listener
	var captured []proxy.InboundPort
	for p := range k.Ports.All() {
		switch {
		case k.Mode != proxy.None && !p.Bound:
			captured = append(captured, p)
		case !mesh.Reserved(p.Number, true):
			list = append(list, side.bound(p))
		}
	}
	if k.Mode != proxy.None {
		list = append(list, side.virtual(captured))
	}
	logAccess(q.accessLog(r, k.DefaultLog), list...)
	return asMap(list...), true
}

// inboundConduct is how connections that are not HTTP are carried to the application at a port.
// What its connection pool says goes before what the proxy says for all ports.
func (q *Queries) inboundConduct(r *query.Reader, p proxy.InboundPort, idle time.Duration) envoy.TCP {
	tcp := q.scope.InboundPool(r, p).GetTcp()
	return envoy.TCP{Idle: cmp.Or(traffic.IdleTimeout(tcp), idle), Lifetime: tcp.GetMaxConnectionDuration().AsDuration()}
}

// bound is a listener with a socket of its own.
func (s inboundSide) bound(p proxy.InboundPort) *listenerv3.Listener {
	ip := p.Bind
	switch {
	case ip != "":
	case s.Bind != "":
		ip = s.Bind
	default:
		ip = envoy.Wildcard
	}
	l := envoy.Listener(envoy.ListenerName(ip, p.Number), ip, p.Number, envoy.Inbound, true)
	l.FilterChains = s.chains(p, nil)
	if p.Protocol.Sniffed() {
		envoy.SniffHTTP(l)
		envoy.DetectWithin(l, s.wait)
	}
	return l
}

// virtual is the listener that redirected connections to the workload reach. Ports that nobody declared pass through.
func (s inboundSide) virtual(ports []proxy.InboundPort) *listenerv3.Listener {
	l := envoy.Listener(envoy.VirtualInbound, envoy.Wildcard, envoy.InboundPort, envoy.Inbound, true)
	envoy.RestoreDestination(l)
	if s.Mode == proxy.Transparent {
		l.Transparent = envoy.Bool(true)
		envoy.KeepSource(l)
	}
	l.FilterChains = []*listenerv3.FilterChain{
		envoy.Chain("virtualInbound-blackhole", envoy.MatchPort(envoy.InboundPort), envoy.TCPProxy(envoy.BlackHoleCluster, envoy.BlackHoleCluster)),
	}
	var known []uint32
	for _, p := range ports {
		if p.Number == envoy.InboundPort {
			continue
		}
		l.FilterChains = append(l.FilterChains, s.chains(p, envoy.MatchPort(p.Number))...)
		if !p.Protocol.Sniffed() {
			known = append(known, p.Number)
		}
	}
	cluster := envoy.InboundPassthroughCluster
	l.FilterChains = append(l.FilterChains, envoy.Chain("virtualInbound-catchall-http", envoy.MatchHTTP(s.HTTP10),
		envoy.HTTPTo(cluster, routes(proxy.InboundPort{}, cluster), s.http)))
	envoy.SniffHTTP(l, known...)
	envoy.DetectWithin(l, s.wait)
	l.DefaultFilterChain = envoy.Chain("virtualInbound", nil, envoy.TCPForward(cluster, cluster, envoy.TCP{Idle: s.Idle}))
	return l
}

// chains serve one port; match is what tells the port from others, nil if the listener is the port's own.
func (s inboundSide) chains(p proxy.InboundPort, match *listenerv3.FilterChainMatch) []*listenerv3.FilterChain {
	cluster := envoy.InboundCluster(p.Number)
	name := envoy.ListenerName(envoy.Wildcard, p.Number)
	options := s.http
	options.Web = p.Protocol == mesh.GRPCWeb
	http := envoy.Chain(name, match, envoy.HTTPTo("inbound_"+name, routes(p, cluster), options))
	if p.Protocol.IsHTTP() {
		return []*listenerv3.FilterChain{http}
	}
	tcp := envoy.Chain(name, match, envoy.TCPForward(cluster, cluster, s.conduct(p)))
	if !p.Protocol.Sniffed() {
		return []*listenerv3.FilterChain{tcp}
	}
	http.FilterChainMatch = envoy.MatchHTTP(s.HTTP10)
	http.FilterChainMatch.DestinationPort = match.GetDestinationPort()
	return []*listenerv3.FilterChain{http, tcp}
}

// routes lead all requests to a port to its cluster.
func routes(p proxy.InboundPort, cluster string) *routev3.RouteConfiguration {
	to := envoy.To(cluster)
	if p.Protocol != mesh.GRPC && p.Protocol != mesh.GRPCWeb { // their clients have policies of their own
		to.RetryPolicy = envoy.RetryUnsent()
	}
	c := envoy.Routes(cluster)
	c.IgnorePortInHostMatching = false
	operation := cluster
	if p.Host != "" {
		operation = envoy.VirtualHostName(p.Host, p.Port)
	}
	host := envoy.VirtualHost("inbound|http|"+envoy.RouteName(p.Port), []string{"*"}, envoy.Route("default", envoy.MatchAll(), to, operation+"/*"))
	host.IncludeRequestAttemptCount = false
	c.VirtualHosts = []*routev3.VirtualHost{host}
	return c
}

func asMap(list ...*listenerv3.Listener) Map {
	changes := make([]omap.Change[omap.Name, *resource.Resource], 0, len(list))
	for _, l := range list {
		changes = append(changes, omap.Put(omap.Name(l.Name), encode(l)))
	}
	return Map{}.With(changes...)
}
