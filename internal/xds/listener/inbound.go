package listener

import (
	"cmp"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/settings"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/authz"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/extension"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/telemetry"
)

// inboundServer is the Server header of responses through inbound listeners, unless the mesh sets another one.
const inboundServer = "istio-envoy"

// VirtualKey names the listener that redirected outbound connections reach first.
type VirtualKey struct {
	Mode     proxy.Mode
	Outbound settings.Outbound
	HTTP10   bool
	// Telemetry names how the listeners log and trace.
	Telemetry telemetry.Key
	// Extensions names the filters that users add.
	Extensions extension.Key
	// IdleTimeout is how long a connection may be without data or requests. 0 means Envoy's default.
	IdleTimeout time.Duration
	// Families are the IP versions of the proxy's addresses.
	Families mesh.Families
}

// VirtualKeyOf returns the key of a class, whose proxies handle traffic to undeclared destinations as outbound says.
func VirtualKeyOf(c proxy.Class, outbound settings.Outbound, t telemetry.Key, e extension.Key) VirtualKey {
	return VirtualKey{Mode: c.Mode, Outbound: outbound, HTTP10: c.HTTP10, Telemetry: t, Extensions: e, IdleTimeout: c.Idle, Families: c.Families}
}

func (q *Queries) virtual(r *query.Reader, k VirtualKey) (Map, bool) {
	if k.Mode == proxy.None {
		return Map{}, true
	}
	port := q.tables.CapturePorts(r).Outbound
	l := atAnyAddress(k.Families, envoy.VirtualOutbound, port, envoy.Outbound)
	limits := q.tables.Connections(r)
	limitBuffers(limits, l)
	l.UseOriginalDst = envoy.Bool(true)
	if k.Mode == proxy.Transparent {
		l.Transparent = envoy.Bool(true)
	}
	l.FilterChains = []*listenerv3.FilterChain{
		// A connection to the port of the proxy itself would be redirected to it again without end.
		envoy.Chain("virtualOutbound-blackhole", envoy.MatchPort(port), envoy.TCPProxy(envoy.BlackHoleCluster, envoy.BlackHoleCluster)),
	}
	added := filters{added: q.added.Filters(r, k.Extensions)}
	catchAll := envoy.Chain("virtualOutbound-catchall-tcp", nil, append(added.network(0), unknownTraffic(k.Outbound, k.IdleTimeout))...)
	if k.Outbound.Mode != settings.ByName {
		l.FilterChains = append(l.FilterChains, catchAll)
		q.telemetry.Settings(r, k.Telemetry).Apply(l)
		return asMap(l), true
	}
	l.DefaultFilterChain = catchAll
	envoy.AddHTTPInspector(l, envoy.AllPorts())
	envoy.SetDetectionTimeout(l, q.tables.DetectionTimeout(r))
	options := httpOptions(q.tables.HTTPSettings(r), limits, k.HTTP10, "")
	options.DynamicClusters, options.Families, options.IdleTimeout = true, k.Families, k.IdleTimeout
	options.First = added.http(0)
	routes := envoy.RouteConfiguration(envoy.AllowAnyByName)
	host := envoy.DynamicUnknownHost()
	host.IncludeRequestAttemptCount = !q.tables.RouteSettings(r).HideAttempts
	routes.VirtualHosts = []*routev3.VirtualHost{host}
	l.FilterChains = append(l.FilterChains, envoy.Chain("virtualOutbound-catchall-http", envoy.MatchHTTP(k.HTTP10),
		append(added.network(0), envoy.HTTPWithRoutes(envoy.DynamicDNSCluster, routes, options))...))
	q.telemetry.Settings(r, k.Telemetry).Apply(l)
	return asMap(l), true
}

// InboundKey names the listeners for the ports that a workload serves.
type InboundKey struct {
	Ports intern.List[proxy.InboundPort]
	// MTLS are the modes of all ports. None of them is inherited.
	MTLS mesh.MTLS
	Mode proxy.Mode
	// Bind is the address to bind if traffic is not redirected to the proxy.
	Bind   string
	HTTP10 bool
	// Telemetry names how the listeners log and trace.
	Telemetry telemetry.Key
	// Extensions names the filters that users add.
	Extensions extension.Key
	// IdleTimeout is how long a connection may be without data or requests. 0 means Envoy's default.
	IdleTimeout time.Duration
	// Balanced says that each new connection goes to the worker with the fewest.
	Balanced bool
	// Families are the IP versions of the proxy's addresses.
	Families mesh.Families
	// Policies name the filters that come first.
	Policies authz.Key
}

// InboundKeyOf returns the key of a class whose workloads have these modes, and to which some policies apply.
func InboundKeyOf(c proxy.Class, modes mesh.MTLS, policies authz.Key, t telemetry.Key, e extension.Key) InboundKey {
	return InboundKey{Extensions: e, Ports: c.Inbound, MTLS: modes, Mode: c.Mode, Bind: c.Bind, HTTP10: c.HTTP10, Telemetry: t, IdleTimeout: c.Idle, Balanced: c.Balance.Inbound, Families: c.Families, Policies: policies}
}

// inboundBuilder makes the inbound listeners of a workload.
type inboundBuilder struct {
	InboundKey
	http envoy.HTTPOptions
	// filters are the filters before all others.
	filters filters
	// detectionTimeout is how long protocol detection waits for the first bytes of a connection.
	detectionTimeout time.Duration
	// tcpOptions say how connections other than HTTP are forwarded to the application at a port.
	tcpOptions func(proxy.InboundPort) envoy.TCPOptions
	// meshTLS terminates mutual TLS of the mesh.
	meshTLS *corev3.TransportSocket
	// serverTLS terminates TLS of clients that are not in the mesh; nil if the port has no settings for that.
	serverTLS func(proxy.InboundPort) *corev3.TransportSocket
	// capture are the ports to which traffic is redirected, and retries the policy of the mesh for requests to the application; nil for none.
	capture mesh.CapturePorts
	retries *networking.HTTPRetry
}

func (q *Queries) inbound(r *query.Reader, k InboundKey) (Map, bool) {
	settings, limits := q.tables.HTTPSettings(r), q.tables.Connections(r)
	side := inboundBuilder{
		InboundKey: k, filters: filters{q.policies.Filters(r, k.Policies), q.added.Filters(r, k.Extensions)}, http: httpOptions(settings, limits, k.HTTP10, inboundServer), detectionTimeout: q.tables.DetectionTimeout(r),
		tcpOptions: func(p proxy.InboundPort) envoy.TCPOptions { return q.inboundTCPOptions(r, p, k.IdleTimeout) },
		serverTLS:  func(p proxy.InboundPort) *corev3.TransportSocket { return q.serverTLS(r, p) },
	}
	side.capture, side.retries = q.tables.CapturePorts(r), q.tables.InboundRetries(r)
	if k.MTLS.Has(mesh.MTLSPermissive) || k.MTLS.Has(mesh.MTLSStrict) {
		side.meshTLS = q.meshTLS(r)
	}
	side.http.IdleTimeout, side.http.ClientCert = k.IdleTimeout, clientCert(settings.ClientCert)
	var list []*listenerv3.Listener
	var captured []proxy.InboundPort
	for p := range k.Ports.All() {
		switch {
		case k.Mode != proxy.None && !p.Bound:
			captured = append(captured, p)
		case !side.capture.Reserved(p.Number, true):
			list = append(list, side.boundListener(p))
		}
	}
	if k.Mode != proxy.None {
		list = append(list, side.virtualListener(captured))
	}
	if k.Balanced {
		envoy.BalanceExactly(list...)
	}
	limitBuffers(limits, list...)
	q.telemetry.Settings(r, k.Telemetry).Apply(list...)
	return asMap(list...), true
}

// inboundTCPOptions say how connections other than HTTP are forwarded to the application at a port. The connection pool
// of the port comes before the idle timeout that the proxy has for all ports.
func (q *Queries) inboundTCPOptions(r *query.Reader, p proxy.InboundPort, idle time.Duration) envoy.TCPOptions {
	tcp := q.scope.InboundPool(r, p).GetTcp()
	return envoy.TCPOptions{IdleTimeout: cmp.Or(traffic.IdleTimeout(tcp), idle), MaxDuration: tcp.GetMaxConnectionDuration().AsDuration()}
}

// boundListener is a listener with a socket of its own.
func (s inboundBuilder) boundListener(p proxy.InboundPort) *listenerv3.Listener {
	ip := p.Bind
	switch {
	case ip != "":
	case s.Bind != "":
		ip = s.Bind
	default:
		ip = envoy.WildcardOf(s.Families)
	}
	both := ip == envoy.LoopbackIPv6 && s.Families.Two()
	if both { // a listener for outbound traffic has both loopback addresses: this one replaces it
		ip = envoy.Loopback
	}
	l := envoy.Listener(envoy.ListenerName(ip, p.Number), ip, p.Number, envoy.Inbound, true)
	if s.Mode != proxy.None {
		envoy.BindOwnSocket(l)
	}
	if both {
		envoy.AddFamily(l)
	}
	in := s.entry(p)
	l.FilterChains = s.chains(in, nil)
	var seen inspection
	seen.add(in)
	s.inspect(l, seen)
	return l
}

// virtualListener is the listener that redirected connections to the workload reach. Ports that no object declares are
// passed through.
func (s inboundBuilder) virtualListener(ports []proxy.InboundPort) *listenerv3.Listener {
	l := atAnyAddress(s.Families, envoy.VirtualInbound, s.capture.Inbound, envoy.Inbound)
	envoy.AddOriginalDst(l)
	if s.Mode == proxy.Transparent {
		l.Transparent = envoy.Bool(true)
		envoy.AddOriginalSrc(l)
	}
	l.FilterChains = []*listenerv3.FilterChain{
		envoy.Chain(envoy.InboundBlackhole, envoy.MatchPort(s.capture.Inbound), envoy.TCPProxy(envoy.BlackHoleCluster, envoy.BlackHoleCluster)),
	}
	rest := s.passthrough(0)
	seen := inspection{others: rest}
	declared := map[uint32]bool{s.capture.Inbound: true}
	add := func(in entry) {
		seen.add(in)
		l.FilterChains = append(l.FilterChains, s.chains(in, envoy.MatchPort(in.port))...)
	}
	for _, p := range ports {
		if !declared[p.Number] {
			add(s.entry(p))
		}
		declared[p.Number] = true
	}
	for p := range s.MTLS.Ports.All() {
		if !declared[p.Port] {
			add(s.passthrough(p.Port))
		}
	}
	for _, c := range s.chains(rest, nil) {
		if c.FilterChainMatch == nil { // takes connections that are not HTTP where no TLS is terminated
			l.DefaultFilterChain = c
			continue
		}
		l.FilterChains = append(l.FilterChains, c)
	}
	s.inspect(l, seen)
	return l
}

// atAnyAddress is a listener with a socket at any address of a proxy.
func atAnyAddress(f mesh.Families, name string, port uint32, way envoy.Direction) *listenerv3.Listener {
	l := envoy.Listener(name, envoy.WildcardOf(f), port, way, true)
	if f == mesh.DualStack {
		envoy.AddFamily(l)
	}
	return l
}

// forward returns the filters that decide about connections other than HTTP to a port, and forward them.
func (s inboundBuilder) forward(port uint32, cluster string, o envoy.TCPOptions) []*listenerv3.Filter {
	return append(s.filters.tcp(port), envoy.TCPForward(cluster, cluster, o))
}

// routes send all requests to a port to its cluster.
func (s inboundBuilder) routes(p proxy.InboundPort, cluster string) *routev3.RouteConfiguration {
	to := envoy.ForwardTo(cluster)
	if p.Protocol != mesh.GRPC && p.Protocol != mesh.GRPCWeb { // clients of gRPC have retry policies of their own
		to.RetryPolicy = inboundRetries(s.retries)
	}
	c := envoy.RouteConfiguration(cluster)
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

// inboundRetries is the retry policy for requests to the application: by default for requests that Envoy could not send, because the application had
// closed the connection. nil means no retries.
func inboundRetries(rule *networking.HTTPRetry) *routev3.RetryPolicy {
	p := envoy.RetryUnsent()
	if rule == nil {
		return p
	}
	if rule.Attempts <= 0 {
		return nil
	}
	p.NumRetries = envoy.Uint(uint32(rule.Attempts))
	envoy.SetRetryConditions(p, rule.RetryOn)
	envoy.SetRetryBackoff(p, rule.Backoff)
	return p
}

func asMap(list ...*listenerv3.Listener) Map {
	changes := make([]omap.Change[omap.Name, *resource.Resource], 0, len(list))
	for _, l := range list {
		changes = append(changes, omap.Put(omap.Name(l.Name), encode(l)))
	}
	return omap.With(Map{}, changes...)
}
