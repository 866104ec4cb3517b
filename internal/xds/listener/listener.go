// Package listener translates the footprints of hosts, and the ports that a workload serves, into listeners.
//
// It owns which listeners exist and what their filter chains look like. Which service owns the connections at an address
// is decided by package transport. The package starts no goroutines.
package listener

import (
	"cmp"
	"net/netip"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/api/connection"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/settings"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/view/transport"
	"github.com/pilotmesh/pilot/internal/xds/authz"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/extension"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/telemetry"
)

// Map is a set of resources by name.
type Map = omap.Map[omap.Name, *resource.Resource]

// Variant is the set of proxy attributes by which listeners at the same address differ.
type Variant struct {
	// NotIntercepted says that traffic is not redirected to the proxy, so that every outbound listener binds the loopback
	// address.
	NotIntercepted bool
	// HTTP10 says that HTTP/1.0 is accepted.
	HTTP10 bool
	// Telemetry names how the listeners log and trace, and Extensions the filters that users add.
	Telemetry  telemetry.Key
	Extensions extension.Key
	// IdleTimeout is how long a connection may be without data or requests, unless a rule limits it. 0 means Envoy's default.
	IdleTimeout time.Duration
	// Balanced says that each new connection goes to the worker with the fewest.
	Balanced bool
	// Families are the IP versions of the proxy's addresses.
	Families mesh.Families
	// HostsOnDemand says that Envoy asks for the hosts of HTTP requests.
	HostsOnDemand bool
}

// VariantOf is the variant of a class.
func VariantOf(c proxy.Class, t telemetry.Key, e extension.Key) Variant {
	return Variant{NotIntercepted: c.Mode == proxy.None, HTTP10: c.HTTP10, Telemetry: t, Extensions: e, IdleTimeout: c.Idle, Balanced: c.Balance.Outbound, Families: c.Families, HostsOnDemand: c.HostsOnDemand}
}

// Key names the listeners of an audience.
type Key struct {
	scope.Audience
	Variant
}

// baseKey names the listener at an address in the base view.
type baseKey struct {
	Variant
	at exposure.Address
}

// Queries are the layers of listeners.
type Queries struct {
	tables    *state.Tables
	services  *service.Queries
	scope     *scope.Queries
	transport *transport.Queries
	policies  *authz.Queries
	telemetry *telemetry.Queries
	added     *extension.Queries
	gateways  *gateway.Queries
	// Base are the listeners for everyone, and Own the ones that differ for a narrower audience.
	Base query.Collection[Variant, *resource.Resource]
	Own  query.Collection[Key, *resource.Resource]
	// Messages are listeners before they are encoded, for readers that look into them. A cell exists only while something
	// reads it: encoding does not.
	Messages query.Query[AddressKey, *listenerv3.Listener]
	// Virtual is the listener that redirected outbound connections reach first.
	Virtual query.Query[VirtualKey, Map]
	// HTTPProxies are the listeners that take requests for any host; see scope.HTTPProxy.
	HTTPProxies query.Query[HTTPProxiesKey, Map]
	// Inbound are the listeners for the ports that a workload serves.
	Inbound query.Query[InboundKey, Map]
	// Gateways are the listeners of gateways.
	Gateways query.Collection[GatewaysKey, *resource.Resource]
	// OwnAddresses hides the listeners for the addresses of a workload itself.
	OwnAddresses query.Query[intern.List[netip.AddrPort], Map]
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, sc *scope.Queries, tp *transport.Queries, policies *authz.Queries, tel *telemetry.Queries, added *extension.Queries, gw *gateway.Queries) *Queries {
	q := &Queries{tables: t, services: s, scope: sc, transport: tp, policies: policies, telemetry: tel, added: added, gateways: gw}
	q.Messages = query.Define(g, "listenerMessage", func(a, b *listenerv3.Listener) bool { return proto.Equal(a, b) },
		func(r *query.Reader, k AddressKey) (*listenerv3.Listener, bool) {
			l, _ := q.message(r, k)
			return l, l != nil
		})
	base := query.Define(g, "listener", layer.Equal, func(r *query.Reader, k baseKey) ([]*resource.Resource, bool) {
		l, _ := q.message(r, AddressKey{Key{scope.Everyone(k.Families), k.Variant}, k.at})
		return encoded(l)
	})
	q.Base = query.Each(g, "listeners", func(r *query.Reader, k Variant) omap.Map[exposure.Address, omap.Unit] {
		return sc.ByAudience.Candidates(k.NotIntercepted).Keys(r, scope.Everyone(k.Families))
	}, base, func(k Variant, at exposure.Address) baseKey { return baseKey{k, at} })
	own := query.Define(g, "scopedListener", layer.Equal, func(r *query.Reader, k AddressKey) ([]*resource.Resource, bool) {
		if k.OfBaseView() {
			return q.inCluster(r, k, base)
		}
		return q.differing(r, k)
	})
	q.Own = query.Each(g, "scopedListeners", func(r *query.Reader, k Key) omap.Map[exposure.Address, omap.Unit] {
		return sc.ByAudience.Candidates(k.NotIntercepted).Keys(r, k.Audience)
	}, own, func(k Key, at exposure.Address) AddressKey { return AddressKey{k, at} })
	q.Virtual = query.Define(g, "virtualOutbound", Map.Equal, q.virtual)
	q.HTTPProxies = query.Define(g, "httpProxies", Map.Equal, q.proxies)
	q.Inbound = query.Define(g, "inboundListeners", Map.Equal, q.inbound)
	q.OwnAddresses = query.Define(g, "ownAddresses", Map.Equal, func(_ *query.Reader, list intern.List[netip.AddrPort]) (Map, bool) {
		var changes []omap.Change[omap.Name, *resource.Resource]
		for at := range list.All() {
			name := envoy.ListenerName(at.Addr().String(), uint32(at.Port()))
			changes = append(changes, omap.Put(omap.Name(name), resource.Hide(name)))
		}
		return omap.With(Map{}, changes...), true
	})
	q.defineGateways(g)
	return q
}

// name returns the name and IP of the listener at an address. Without traffic redirection an empty IP is the loopback
// address.
func (v Variant) name(at exposure.Address) (name, ip string) {
	ip = at.IP
	switch {
	case ip == "" && v.NotIntercepted:
		ip = envoy.LoopbackOf(v.Families)
	case ip == "":
		ip = envoy.WildcardOf(v.Families)
	case at.IsUnix():
		return ip, ip
	}
	return envoy.ListenerName(ip, at.Port), ip
}

// listenerInput is everything that a listener depends on.
type listenerInput struct {
	Variant
	at       exposure.Address
	plan     *transport.Plan
	outbound settings.Outbound
	http     settings.HTTPSettings
	// detectionTimeout is how long protocol detection waits for the first bytes of a connection.
	detectionTimeout time.Duration
	log              telemetry.Settings
	capture          mesh.CapturePorts
	limits           connection.Settings
	filters          filters
	// sessions is true if routes may send requests to the endpoint of their session.
	sessions bool
	// remoteAddress is true if the address of the application is added to x-forwarded-for.
	remoteAddress bool
}

// AddressKey names a listener: its address, and the clients it is for.
type AddressKey struct {
	Key
	At exposure.Address
}

// message is the listener before it is encoded; nil if there is none. differs is false for clients who share the listener
// of a wider audience.
func (q *Queries) message(r *query.Reader, k AddressKey) (l *listenerv3.Listener, differs bool) {
	c := listenerInput{Variant: k.Variant, at: k.At, outbound: q.scope.Outbound(r, k.Set())}
	c.plan, differs = q.transport.Plan(r, transport.Key{Audience: k.Audience, NotIntercepted: k.NotIntercepted, At: k.At})
	if !differs {
		return nil, false
	}
	c.log, c.capture, c.limits = q.telemetry.Settings(r, k.Telemetry), q.tables.CapturePorts(r), q.tables.Connections(r)
	c.filters = filters{added: q.added.Filters(r, k.Extensions)}
	if c.plan.HTTP {
		c.http, c.sessions, c.remoteAddress = q.tables.HTTPSettings(r), q.tables.Sessions(), q.tables.SidecarRemoteAddress()
	}
	if c.plan.HTTP || c.plan.NeedsTLSInspector() {
		c.detectionTimeout = q.tables.DetectionTimeout(r)
	}
	return c.listener(), true
}

// encode turns a listener into a resource. All listeners are encoded here.
func encode(l *listenerv3.Listener) *resource.Resource {
	return resource.New(resource.Listener, l.Name, l)
}

func encoded(l *listenerv3.Listener) ([]*resource.Resource, bool) {
	if l == nil {
		return nil, false
	}
	return []*resource.Resource{encode(l)}, true
}

// inCluster is the listener at an address for all proxies in a cluster, if services have other addresses there. base are the listeners for everyone.
func (q *Queries) inCluster(r *query.Reader, k AddressKey, base query.Query[baseKey, []*resource.Resource]) ([]*resource.Resource, bool) {
	if k.At.IP == "" {
		return nil, false // connections to any address are distinguished by other means
	}
	all, _ := base.Get(r, baseKey{k.Variant, k.At})
	l, _ := q.message(r, k)
	own, _ := encoded(l)
	if layer.Equal(own, all) {
		return nil, false
	}
	return layer.HideMissing(own, all, resource.Hide), true
}

// differing is the listener at an address for an audience within the proxies of a set, if it differs from the listener of the next wider audience.
func (q *Queries) differing(r *query.Reader, k AddressKey) ([]*resource.Resource, bool) {
	l, differs := q.message(r, k)
	if differs && l == nil && k.Set().Overlay() && !k.Labelled() {
		n, _ := k.name(k.At)
		return []*resource.Resource{resource.Hide(n)}, true
	}
	return encoded(l)
}

// socket returns the listener without filter chains.
func (c listenerInput) socket(name, ip string) *listenerv3.Listener {
	l, unix := atSocket(ip)
	if !unix {
		l = envoy.Listener(name, ip, c.at.Port, envoy.Outbound, c.plan.Bound)
		if c.plan.Bound && !c.NotIntercepted {
			envoy.BindOwnSocket(l)
		}
	}
	if c.Balanced {
		envoy.BalanceExactly(l)
	}
	if c.at.IP == "" && c.Families.Two() {
		envoy.AddFamily(l)
	}
	for _, also := range c.plan.Also {
		envoy.AddAddress(l, also)
	}
	return l
}

// listener returns the listener; nil if it would have no purpose.
func (c listenerInput) listener() *listenerv3.Listener {
	name, ip := c.name(c.at)
	bound := c.plan.Bound
	if !c.plan.InUse() || c.capture.Reserved(c.at.Port, bound) && (bound || c.at.IP == "") {
		return nil
	}
	l := c.socket(name, ip)
	if c.plan.NeedsTLSInspector() {
		envoy.AddTLSInspector(l, envoy.AllPorts())
	}
	for i := range c.plan.Rules {
		rule := &c.plan.Rules[i]
		m := &listenerv3.FilterChainMatch{ServerNames: rule.ServerNames}
		envoy.MatchAddresses(m, rule.Blocks)
		l.FilterChains = append(l.FilterChains, envoy.Chain("", m, c.connections(c.forwardTo(rule)...)...))
	}
	if c.plan.HTTP {
		envoy.AddHTTPInspector(l, envoy.AllPorts())
		options := httpOptions(c.http, c.limits, c.HTTP10, "")
		options.DynamicClusters = c.plan.DynamicHTTP || c.outbound.Mode == settings.ByName
		options.Sessions, options.UseRemoteAddress = c.sessions, c.remoteAddress
		options.GRPCWeb, options.Families, options.IdleTimeout = c.plan.GRPCWeb, c.Families, c.IdleTimeout
		options.First, options.HostsOnDemand = c.filters.http(c.at.Port), c.HostsOnDemand && c.plan.DedicatedPort.Host == ""
		http := c.connections(envoy.HTTPWithRDS("outbound_"+name, c.routeName(), options))
		l.FilterChains = append(l.FilterChains, envoy.Chain("", envoy.MatchHTTP(c.HTTP10), http...))
		if len(c.plan.Held) > 0 { // Envoy looks at the narrowest block only, whatever else a chain matches
			m := envoy.MatchHTTP(c.HTTP10)
			envoy.MatchAddresses(m, c.plan.Held)
			l.FilterChains = append(l.FilterChains, envoy.Chain("", m, http...))
		}
	}
	if len(l.ListenerFilters) > 0 {
		envoy.SetDetectionTimeout(l, c.detectionTimeout)
	}
	switch calls := c.plan.Dubbo(); {
	case len(calls) > 0 && len(l.FilterChains) == 0:
		l.FilterChains = []*listenerv3.FilterChain{envoy.Chain("", nil, c.connections(dubboProxy(name, calls))...)}
	case c.plan.DefaultRule != nil && len(l.FilterChains) == 0:
		l.FilterChains = []*listenerv3.FilterChain{envoy.Chain("", nil, c.connections(c.forwardTo(c.plan.DefaultRule)...)...)}
	case c.plan.DefaultRule != nil:
		l.DefaultFilterChain = envoy.Chain("", nil, c.connections(c.forwardTo(c.plan.DefaultRule)...)...)
	case !bound: // a proxy without redirection does not know the original destination
		l.DefaultFilterChain = envoy.Chain(envoy.PassthroughChain, nil, c.connections(unknownTraffic(c.outbound, c.IdleTimeout))...)
	}
	limitBuffers(c.limits, l)
	c.log.Apply(l)
	return l
}

// connections are the filters of a chain: first what users add, then its own.
func (c listenerInput) connections(own ...*listenerv3.Filter) []*listenerv3.Filter {
	return append(c.filters.network(c.at.Port), own...)
}

// routeName is the name of the route configuration for connections that are HTTP.
func (c listenerInput) routeName() string {
	if own := c.plan.DedicatedPort; own.Host != "" {
		return envoy.SniffedRouteName(own.Host, own.Port)
	}
	return envoy.RouteName(c.at.Port)
}

// forwardTo returns the filters that send connections where a rule says.
func (v Variant) forwardTo(rule *transport.Rule) []*listenerv3.Filter {
	if len(rule.Destinations) == 1 {
		to := rule.Destinations[0]
		cluster := clusterOf(to)
		proxy := envoy.TCPForward(cluster, cluster, v.tcpOptions(rule.Options))
		if to.Dynamic && len(rule.ServerNames) > 0 {
			return []*listenerv3.Filter{envoy.SNIForwardProxy(to.Port, v.Families), proxy}
		}
		return []*listenerv3.Filter{proxy}
	}
	list := make([]envoy.Weighted, 0, len(rule.Destinations))
	for _, d := range rule.Destinations {
		list = append(list, envoy.Weighted{Cluster: clusterOf(d), Weight: d.Weight})
	}
	return []*listenerv3.Filter{envoy.TCPSplit(rule.StatPrefix, list, v.tcpOptions(rule.Options))}
}

func (v Variant) tcpOptions(c transport.ConnectionOptions) envoy.TCPOptions {
	return envoy.TCPOptions{IdleTimeout: cmp.Or(c.IdleTimeout, v.IdleTimeout), MaxDuration: c.MaxDuration, HashSourceIP: c.HashSourceIP, TunnelTarget: c.TunnelTarget, TunnelPOST: c.TunnelPOST}
}

func clusterOf(d transport.Destination) string {
	if d.Host == "" {
		return envoy.BlackHoleCluster
	}
	return envoy.OutboundCluster(d.Port, d.Subset, d.Host)
}

// httpOptions say how requests are handled. server is the Server header of responses unless the mesh sets one.
func httpOptions(s settings.HTTPSettings, limits connection.Settings, old bool, server string) envoy.HTTPOptions {
	if s.Server != "" {
		server = s.Server
	}
	return envoy.HTTPOptions{
		AcceptHTTP10: old, NormalizePath: s.NormalizePath, MergeSlashes: s.MergeSlashes, DecodeSlashes: s.Slashes == settings.DecodeSlashes,
		PassServerHeader: s.KeepServer, Server: server, NoRequestID: s.NoRequestID, SuppressEnvoyHeaders: s.NoDebugHeaders, PreserveHeaderCase: s.KeepCase,
		ForwardPort: s.ForwardPort, Connections: limits,
	}
}

// unknownTraffic is the filter for connections to undeclared destinations. idle is their idle timeout; 0 means Envoy's default.
func unknownTraffic(o settings.Outbound, idle time.Duration) *listenerv3.Filter {
	cluster := envoy.UnknownTrafficCluster(o.Port, o.Subset, o.Host)
	if o.Mode == settings.RegistryOnly {
		cluster = envoy.BlackHoleCluster
	}
	return envoy.TCPForward(cluster, cluster, envoy.TCPOptions{IdleTimeout: idle})
}

// limitBuffers limits the bytes that listeners buffer per connection.
func limitBuffers(limits connection.Settings, list ...*listenerv3.Listener) {
	for _, l := range list {
		if limits.ListenerBuffer.Set {
			l.PerConnectionBufferLimitBytes = envoy.Uint(limits.ListenerBuffer.Value)
		}
	}
}
