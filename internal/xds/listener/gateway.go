package listener

import (
	"slices"
	"strings"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/connection"
	gateways "github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/security/compliance"
	"github.com/pilotmesh/pilot/internal/state/settings"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/transport"
	"github.com/pilotmesh/pilot/internal/xds/authz"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/extension"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/telemetry"
)

// GatewaysKey names the listeners of gateways.
type GatewaysKey struct {
	gateway.Proxies
	HTTP10 bool
	// Telemetry names how the listeners log and trace.
	Telemetry telemetry.Key
	// Extensions names the filters that users add.
	Extensions extension.Key
	// IdleTimeout is how long a connection may be without data or requests. 0 means Envoy's default.
	IdleTimeout time.Duration
	// Balanced says that each new connection goes to the worker with the fewest.
	Balanced bool
	// Families are the IP versions of the proxies' addresses.
	Families mesh.Families
	// Topology describes the proxies in front of the gateways, if they have settings of their own.
	Topology proxy.Topology
	// Connections are the settings of the gateways for connections, one item; empty if they have none of their own.
	Connections intern.List[connection.Settings]
	// Policies name the filters that come first.
	Policies authz.Key
}

// GatewaysKeyOf returns the key of a class of gateways to which some policies apply.
func GatewaysKeyOf(c proxy.Class, p gateway.Proxies, policies authz.Key, t telemetry.Key, e extension.Key) GatewaysKey {
	return GatewaysKey{Extensions: e, Proxies: p, HTTP10: c.HTTP10, Telemetry: t, IdleTimeout: c.Idle, Balanced: c.Balance.Outbound, Families: c.Families, Topology: c.Topology, Connections: c.Connections, Policies: policies}
}

// gatewaySocketKey names a listener of gateways.
type gatewaySocketKey struct {
	GatewaysKey
	at gateway.Socket
}

// defineGateways defines the listeners of gateways. There is one cell per socket.
func (q *Queries) defineGateways(g *query.Graph) {
	at := query.Define(g, "gatewayListener", layer.Equal, func(r *query.Reader, k gatewaySocketKey) ([]*resource.Resource, bool) {
		plan, ok := q.gateways.Listener(r, k.Served, k.at)
		if !ok {
			return nil, false
		}
		return encoded(q.gateway(r, k, plan))
	})
	q.Gateways = query.Each(g, "gatewayListeners", func(r *query.Reader, k GatewaysKey) omap.Map[gateway.Socket, omap.Unit] {
		return q.gateways.Sockets(r, k.Served)
	}, at, func(k GatewaysKey, at gateway.Socket) gatewaySocketKey { return gatewaySocketKey{k, at} })
}

// gatewayBuilder makes one listener of gateways.
type gatewayBuilder struct {
	q *Queries
	r *query.Reader
	gatewaySocketKey
	name string
	http envoy.HTTPOptions
	// filters are the filters before all others.
	filters filters
	// taken are the names in TLS that have a filter chain already. Envoy refuses a listener with two chains for one name.
	taken map[string]bool
}

// gateway returns a listener of gateways; nil if no server of it can take a connection.
func (q *Queries) gateway(r *query.Reader, k gatewaySocketKey, plan *gateway.Listener) *listenerv3.Listener {
	b := gatewayBuilder{q: q, r: r, gatewaySocketKey: k, filters: filters{q.policies.Filters(r, k.Policies), q.added.Filters(r, k.Extensions)}, taken: q.terminated(r, k, plan)}
	l := b.socket()
	b.name = l.Name
	b.http = q.gatewayHTTP(r, k)
	b.http.First = b.filters.http(k.at.Port)
	b.http.GRPCWeb = slices.ContainsFunc(plan.Servers, func(s *gateway.Placed) bool { return s.Protocol == mesh.GRPCWeb })
	for _, s := range plan.Servers {
		l.FilterChains = append(l.FilterChains, b.chains(s)...)
		if s.Kind() == gateways.TakesHTTP {
			break // the others share its route configuration
		}
	}
	b.addShared(l, plan.Shared)
	if len(l.FilterChains) == 0 {
		return nil
	}
	if q.topology(r, k.Topology).ProxyProtocol && !k.at.QUIC {
		envoy.AddProxyProtocol(l)
	}
	if plan.Shared != nil || plan.Servers[0].Kind().IsTLS() && !k.at.QUIC {
		envoy.AddTLSInspector(l, envoy.AllPorts())
	}
	if k.Balanced && !k.at.QUIC { // datagrams belong to no connection of a socket
		envoy.BalanceExactly(l)
	}
	limitBuffers(b.http.Connections, l)
	q.telemetry.Settings(r, k.Telemetry).Apply(l)
	return l
}

// addShared adds the filter chain of the hosts with certificates on demand. The listener then chooses its chains by name: Envoy takes either a rule
// for all chains, or a match of each.
func (b gatewayBuilder) addShared(l *listenerv3.Listener, s *gateway.Shared) {
	if s == nil {
		return
	}
	names := []envoy.ServerNames{{Chain: s.Table, Names: s.Names}}
	other := ""
	for _, c := range l.FilterChains {
		hosts := c.GetFilterChainMatch().GetServerNames()
		if c.FilterChainMatch = nil; len(hosts) == 0 {
			c.Name, other = gateways.AnyHost, gateways.AnyHost
			continue
		}
		c.Name = hosts[0] // no other chain has the name
		names = append(names, envoy.ServerNames{Chain: c.Name, Names: hosts})
	}
	o := b.http
	o.ChecksHost = true
	chain := envoy.Chain(s.Table, nil, append(b.filters.network(b.at.Port), envoy.HTTPWithRDS("outbound_"+b.name, s.Table, o))...)
	chain.TransportSocket = envoy.OnDemandTLS(b.q.tables.TLS(b.r, compliance.Parameters{}))
	chain.TransportSocketConnectTimeout = envoy.Duration(handshakeTimeout)
	l.FilterChains = append(l.FilterChains, chain)
	envoy.MatchServerNames(l, names, other)
}

// terminated returns the names for which some server shows a certificate. No rule for a server that forwards TLS takes one of them.
func (q *Queries) terminated(r *query.Reader, k gatewaySocketKey, plan *gateway.Listener) map[string]bool {
	taken := map[string]bool{}
	if !slices.ContainsFunc(plan.Servers, func(s *gateway.Placed) bool { return s.Kind() == gateways.PassesTLS }) {
		return taken
	}
	servers, _ := q.gateways.ServersAt(r, k.Served, k.at)
	for _, s := range servers {
		if s.Secure() {
			for _, host := range s.Hosts {
				taken[host.Name] = true
			}
		}
	}
	return taken
}

// free returns the names that have no filter chain yet. From now on they have one.
func (b gatewayBuilder) free(names []string) (list []string) {
	for _, name := range names {
		if !b.taken[name] {
			b.taken[name] = true
			list = append(list, name)
		}
	}
	return list
}

// socket returns the listener without filter chains.
func (b gatewayBuilder) socket() *listenerv3.Listener {
	if l, ok := atSocket(b.at.Bind); ok {
		return l
	}
	ip := b.at.Bind
	if ip == "" {
		ip = envoy.WildcardOf(b.Families)
	}
	l := envoy.Listener(envoy.ListenerName(ip, b.at.Port), ip, b.at.Port, envoy.Outbound, true)
	if b.at.QUIC {
		l = envoy.QUICListener(ip, b.at.Port, envoy.Outbound)
	}
	if b.at.Bind == "" && b.Families.Two() {
		envoy.AddFamily(l)
	}
	return l
}

// atSocket returns a listener at a Unix domain socket, which has the name of its address; false if bind is no such address.
func atSocket(bind string) (*listenerv3.Listener, bool) {
	path, ok := strings.CutPrefix(bind, "unix://")
	return &listenerv3.Listener{Name: bind, Address: envoy.Pipe(path), TrafficDirection: envoy.Outbound}, ok
}

// chains are the filter chains of a server.
func (b gatewayBuilder) chains(s *gateway.Placed) (list []*listenerv3.FilterChain) {
	add := func(names []string, filters ...*listenerv3.Filter) {
		var m *listenerv3.FilterChainMatch
		if len(names) > 0 && !slices.Contains(names, gateways.AnyHost) {
			m = &listenerv3.FilterChainMatch{ServerNames: names}
		}
		c := envoy.Chain("", m, filters...)
		if s.Secure() {
			c.TransportSocket = b.tls(s)
			c.TransportSocketConnectTimeout = envoy.Duration(handshakeTimeout)
		}
		list = append(list, c)
	}
	switch s.Kind() {
	case gateways.TakesHTTP:
		add(nil, b.requests(s)...)
	case gateways.TakesHTTPS:
		add(namesOf(s), b.requests(s)...)
	case gateways.TakesTCP:
		if rule, ok := b.q.transport.GatewayTCP(b.r, b.Proxies, s); ok {
			add(nil, b.forward(rule)...)
		}
	case gateways.TerminatesTLS:
		if rule, ok := b.q.transport.GatewayTCP(b.r, b.Proxies, s); ok {
			add(namesOf(s), b.forward(rule)...)
		}
	case gateways.PassesTLS:
		for _, rule := range b.q.transport.GatewayTLS(b.r, b.Proxies, s) {
			if names := b.free(rule.ServerNames); len(names) > 0 {
				add(names, b.forward(rule)...)
			}
		}
	case gateways.PassesMeshTLS:
		for _, to := range b.q.transport.GatewayPass(b.r, b.Proxies, s) {
			if name := envoy.ServerName(to.Port, to.Subset, to.Host); len(b.free([]string{name})) > 0 {
				list = append(list, b.passing(to))
			}
		}
	}
	return list
}

// passing forwards TLS of the mesh for a port of a service, or a subset of it. No policy of the gateway decides about it: the caller is
// not known here, and the policies of the service's workloads decide.
func (b gatewayBuilder) passing(to transport.Destination) *listenerv3.FilterChain {
	name := envoy.ServerName(to.Port, to.Subset, to.Host)
	m := &listenerv3.FilterChainMatch{ServerNames: []string{name}, ApplicationProtocols: envoy.MeshALPN()}
	proxy := envoy.TCPForward(name, name, envoy.TCPOptions{IdleTimeout: b.IdleTimeout})
	return envoy.Chain("", m, append(b.filters.network(b.at.Port), proxy)...)
}

// handshakeTimeout is how long a client may take for the TLS handshake.
const handshakeTimeout = 15 * time.Second

// headersTimeout is how long a client may take for the headers of a request. Otherwise clients that send a byte now and then could hold as many
// connections as they like.
const headersTimeout = 30 * time.Second

// namesOf are the names in TLS for which a server takes connections.
func namesOf(s *gateway.Placed) []string {
	names := make([]string, 0, len(s.Hosts))
	for _, host := range s.Hosts {
		if !slices.Contains(names, host.Name) {
			names = append(names, host.Name)
		}
	}
	return names
}

// forward are the filters that decide about connections other than HTTP, and send them where a rule says.
func (b gatewayBuilder) forward(rule transport.Rule) []*listenerv3.Filter {
	v := Variant{IdleTimeout: b.IdleTimeout, Families: b.Families}
	return append(b.filters.tcp(b.at.Port), v.forwardTo(&rule)...)
}

// requests are the filters for the requests to a server.
func (b gatewayBuilder) requests(s *gateway.Placed) []*listenerv3.Filter {
	stat := "outbound_" + b.name
	if s.Name != "" {
		stat = s.Name
	}
	return append(b.filters.network(b.at.Port), envoy.HTTPWithRDS(stat, s.Table, b.http))
}

// gatewayHTTP say how gateways handle requests. Gateways are where requests enter the mesh: they know the address of the client from the
// connection, or from the proxies before them that the mesh trusts, and believe nothing that a client says of its certificate.
func (q *Queries) gatewayHTTP(r *query.Reader, k gatewaySocketKey) envoy.HTTPOptions {
	s := q.tables.HTTPSettings(r)
	o := httpOptions(s, q.connections(r, k.Connections), k.HTTP10, inboundServer)
	topology := q.topology(r, k.Topology)
	details := topology.ClientCert
	if s.GivenDetails {
		details = s.ClientCert
		details.Forward = topology.ClientCert.Forward
	}
	o.HTTP3, o.HeadersTimeout, o.StripHostPort, o.Sessions = k.at.QUIC, headersTimeout, q.tables.StripsHostPort(), q.tables.Sessions()
	o.UseRemoteAddress, o.TrustedHops = true, topology.TrustedProxies
	o.IdleTimeout, o.ClientCert = k.IdleTimeout, clientCert(details)
	return o
}

// connections returns the settings of gateways for connections: their own, or else the settings of the mesh.
func (q *Queries) connections(r *query.Reader, own intern.List[connection.Settings]) connection.Settings {
	for c := range own.All() {
		return c
	}
	return q.tables.Connections(r)
}

// topology returns the settings of gateways about the proxies in front of them: their own, or else the settings of the mesh.
func (q *Queries) topology(r *query.Reader, own proxy.Topology) settings.GatewayTopology {
	if !own.Own {
		return q.tables.GatewayTopology(r)
	}
	return settings.TopologyOf(own.TrustedProxies, meshconfig.ForwardClientCertDetails(meshconfig.ForwardClientCertDetails_value[own.ClientCert]), own.ProxyProtocol)
}
