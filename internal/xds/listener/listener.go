// Package listener translates what hosts take up on a client's side, and what a workload serves, into listeners.
//
// It owns which listeners exist and who gets an address that several want: HTTP hosts share a port, a TCP service has
// its address to itself, the oldest wins. The package starts no goroutines; it must not import other translators, the
// store or sources.
package listener

import (
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// maxClaimants bounds how many services at one address are looked at.
const maxClaimants = 60

// Map is a set of resources by name.
type Map = omap.Map[omap.Name, *resource.Resource]

// All names the listeners of what all see. Direct: nothing redirects, so every listener binds the loopback address.
type All struct{ Direct bool }

// In names the listeners of a set.
type In struct {
	Set    scope.Set
	Direct bool
}

type addressAll struct {
	All
	at service.Address
}

type addressIn struct {
	In
	at service.Address
}

// Queries are the listeners.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	scope    *scope.Queries
	// Base are the listeners of what all see; Scoped those of a set.
	Base   *query.Collection[All, *resource.Resource]
	Scoped *query.Collection[In, *resource.Resource]
	// Virtual is the listener that redirected connections reach first.
	Virtual *query.Query[Virtual, Map]
	// Inbound are those of what a workload serves.
	Inbound *query.Query[Inbound, Map]
}

// Define adds the queries.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, sc *scope.Queries) *Queries {
	q := &Queries{tables: t, services: s, scope: sc}
	base := query.Define(g, "listener", layer.Equal, q.base)
	q.Base = query.Each(g, "listeners", func(r *query.Reader, k All) omap.Map[service.Address, omap.Unit] {
		return pick(k.Direct, s.Taken).Keys(r, service.All{})
	}, base, func(k All, at service.Address) addressAll { return addressAll{k, at} })
	scoped := query.Define(g, "scopedListener", layer.Equal, q.scoped)
	q.Scoped = query.Each(g, "scopedListeners", func(r *query.Reader, k In) omap.Map[service.Address, omap.Unit] {
		return pick(k.Direct, sc.Taken).Keys(r, k.Set)
	}, scoped, func(k In, at service.Address) addressIn { return addressIn{k, at} })
	sameMap := func(a, b Map) bool { return a.Hash() == b.Hash() }
	q.Virtual = query.Define(g, "virtualOutbound", sameMap, virtual)
	q.Inbound = query.Define(g, "inboundListeners", sameMap, inbound)
	return q
}

func pick[C comparable](direct bool, t *service.Taken[C]) *query.Groups[C, service.Address, service.Claimant] {
	if direct {
		return t.Local
	}
	return t.Listen
}

// name is the listener at an address; where nothing redirects, all are on the loopback address.
func name(direct bool, at service.Address) (name, ip string) {
	ip = at.IP
	switch {
	case direct:
		ip = envoy.Loopback
	case ip == "":
		ip = envoy.Wildcard
	}
	return envoy.ListenerName(ip, at.Port), ip
}

// content is what a listener is made of.
type content struct {
	direct bool
	at     service.Address
	http   bool // HTTP hosts are told by name here
	mode   state.OutboundMode
	blocks []block // services with blocks of addresses here
	tcp    string  // the cluster of the TCP service that has the address, if any
	sniff  bool    // that service may speak HTTP
}

type block struct {
	cluster string
	ranges  []*corev3.CidrRange
}

func (q *Queries) base(r *query.Reader, k addressAll) ([]*resource.Resource, bool) {
	c := content{direct: k.Direct, at: k.at, mode: q.tables.OutboundMode(r)}
	claimants := claims{}
	claimants.add(pick(k.Direct, q.services.Taken).Group(r, service.All{}, k.at), func(string) bool { return true })
	c.http = claimants.http
	q.settle(r, &c, claimants.hosts, func(string) string { return "" })
	return c.listener()
}

// claims collects who wants an address, oldest first.
type claims struct {
	http  bool
	hosts []string
	gone  bool // somebody only used to want it
}

func (c *claims) add(group omap.Map[service.Claimant, omap.Unit], counts func(host string) bool) {
	for who := range group.All() {
		switch {
		case who.Host == "":
			c.http = true
		case who.Created == service.Never:
			c.gone = true
		case len(c.hosts) < maxClaimants && counts(who.Host):
			c.hosts = append(c.hosts, who.Host)
		}
	}
}

func (q *Queries) scoped(r *query.Reader, k addressIn) ([]*resource.Resource, bool) {
	c := content{direct: k.Direct, at: k.at, mode: q.scope.Outbound(r, k.Set)}
	layerOf := func(host string) string { return q.scope.Layer(r, host, k.Set.Namespace) }
	own := claims{}
	own.add(pick(k.Direct, q.scope.Taken).Group(r, k.Set, k.at), func(string) bool { return true })
	if !k.Set.Overlay() {
		c.http = own.http
		q.settle(r, &c, own.hosts, layerOf)
		return c.listener()
	}
	base := claims{}
	base.add(pick(k.Direct, q.services.Taken).Group(r, service.All{}, k.at), func(string) bool { return true })
	if len(own.hosts) == 0 && !own.gone && (base.http || !own.http) {
		return nil, false // nothing differs here
	}
	c.http = own.http || base.http
	q.settle(r, &c, q.merged(r, base.hosts, own.hosts, layerOf), layerOf)
	if list, ok := c.listener(); ok {
		return list, true
	}
	n, _ := name(k.Direct, k.at)
	return []*resource.Resource{resource.Hide(n)}, true
}

// merged are the claimants that a namespace sees: those of the base that look the same from there come first, because
// what all see keeps its address.
func (q *Queries) merged(r *query.Reader, base, own []string, layerOf func(string) string) []string {
	var hosts []string
	for _, h := range base {
		if layerOf(h) == "" {
			hosts = append(hosts, h)
		}
	}
	return append(hosts, own...)
}

// settle gives the address to the oldest service; services with blocks of addresses share it.
func (q *Queries) settle(r *query.Reader, c *content, hosts []string, layerOf func(string) string) {
	for _, host := range hosts {
		s, ok := q.services.Service.Get(r, service.View{Host: host, Layer: layerOf(host)})
		if !ok {
			continue
		}
		p, ok := s.Port(c.at.Port)
		if !ok {
			continue
		}
		cluster := envoy.OutboundCluster(p.Number, "", host)
		if ranges := blocks(s.Addresses); len(ranges) > 0 && c.at.IP == "" && !c.direct {
			c.blocks = append(c.blocks, block{cluster, ranges})
			continue
		}
		if c.tcp == "" {
			c.tcp, c.sniff = cluster, p.Protocol.Sniffed()
		}
	}
}

func blocks(addresses []string) []*corev3.CidrRange {
	var out []*corev3.CidrRange
	for _, a := range addresses {
		if !strings.Contains(a, "/") {
			continue
		}
		if p, err := netip.ParsePrefix(a); err == nil {
			out = append(out, envoy.Prefix(p.Masked().Addr().String(), uint32(p.Bits())))
		}
	}
	return out
}

func (c content) listener() ([]*resource.Resource, bool) {
	if !c.http && c.tcp == "" && len(c.blocks) == 0 {
		return nil, false
	}
	name, ip := name(c.direct, c.at)
	if reserved(c.direct, ip, c.at.Port) {
		return nil, false
	}
	l := envoy.Listener(name, ip, c.at.Port, envoy.Outbound, c.direct)
	taken := map[string]bool{}
	for _, b := range c.blocks {
		m := &listenerv3.FilterChainMatch{}
		for _, p := range b.ranges { // two chains with one match would make Envoy refuse the listener
			if key := p.String(); !taken[key] {
				taken[key] = true
				m.PrefixRanges = append(m.PrefixRanges, p)
			}
		}
		if len(m.PrefixRanges) > 0 {
			l.FilterChains = append(l.FilterChains, envoy.Chain("", m, envoy.TCPProxy(b.cluster, b.cluster)))
		}
	}
	if c.http || c.sniff {
		envoy.Sniff(l)
		l.FilterChains = append(l.FilterChains, envoy.Chain("", envoy.MatchHTTP(c.tcp == ""), envoy.HTTPByName("outbound_"+name, envoy.RouteName(c.at.Port))))
	}
	switch {
	case c.tcp != "" && len(l.FilterChains) == 0:
		l.FilterChains = []*listenerv3.FilterChain{envoy.Chain("", nil, envoy.TCPProxy(c.tcp, c.tcp))}
	case c.tcp != "":
		l.DefaultFilterChain = envoy.Chain("", nil, envoy.TCPProxy(c.tcp, c.tcp))
	case !c.direct: // a proxy that is not redirected to does not know where else a connection was going
		l.DefaultFilterChain = envoy.Chain(envoy.PassthroughChain, nil, unknown(c.mode))
	}
	return []*resource.Resource{resource.New(resource.Listener, name, l)}, true
}

// reserved reports whether an address is the proxy's own. Envoy refuses a second listener there.
func reserved(direct bool, ip string, port uint32) bool {
	if !direct {
		return ip == envoy.Wildcard && (port == envoy.OutboundPort || port == envoy.InboundPort)
	}
	return port >= envoy.FirstOwnPort && port <= envoy.LastOwnPort || port == envoy.MetricsPort
}

// unknown is what happens to connections that are for nobody who was declared.
func unknown(mode state.OutboundMode) *listenerv3.Filter {
	cluster := envoy.PassthroughCluster
	if mode == state.RegistryOnly {
		cluster = envoy.BlackHoleCluster
	}
	return envoy.TCPProxy(cluster, cluster)
}
