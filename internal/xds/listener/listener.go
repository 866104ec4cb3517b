// Package listener translates what hosts take up on a client's side, and what a workload serves, into listeners.
//
// It owns which listeners exist and what their filter chains look like; whose the connections at an address are is up to
// package transport. The package starts no goroutines; it must not import other translators, the store or sources.
package listener

import (
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/view/transport"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Map is a set of resources by name.
type Map = omap.Map[omap.Name, *resource.Resource]

// Shape is by what proxies' listeners differ that are about the same addresses.
type Shape struct {
	// Direct: nothing redirects, so every listener binds the loopback address.
	Direct bool
	// HTTP10: HTTP/1.0 counts as HTTP.
	HTTP10 bool
	// DefaultLog: the access log has its default format.
	DefaultLog bool
}

// ShapeOf is the shape of a class's listeners.
func ShapeOf(c proxy.Class) Shape {
	return Shape{Direct: c.Mode == proxy.None, HTTP10: c.HTTP10, DefaultLog: c.DefaultLog}
}

// In names the listeners of a set.
type In struct {
	Set scope.Set
	Shape
}

// For names the listeners of callers with labels that rules name.
type For struct {
	scope.Labelled
	Shape
}

type addressAll struct {
	Shape
	at service.Address
}

type addressIn struct {
	In
	at service.Address
}

// Queries are the listeners.
type Queries struct {
	tables    *state.Tables
	services  *service.Queries
	scope     *scope.Queries
	transport *transport.Queries
	// Base are the listeners of what all see; Scoped those of a set; Labelled those of callers with labels.
	Base     *query.Collection[Shape, *resource.Resource]
	Scoped   *query.Collection[In, *resource.Resource]
	Labelled *query.Collection[For, *resource.Resource]
	// Messages are listeners as they are before they are encoded, for who has to look into them. A place has such a cell only
	// while something reads it: to encode it does without.
	Messages *query.Query[Place, *listenerv3.Listener]
	// Virtual is the listener that redirected connections reach first.
	Virtual *query.Query[Virtual, Map]
	// Proxies are the HTTP proxies of a scope.
	Proxies *query.Query[Proxies, Map]
	// Inbound are those of what a workload serves.
	Inbound *query.Query[Inbound, Map]
}

// Define adds the queries.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, sc *scope.Queries, tp *transport.Queries) *Queries {
	q := &Queries{tables: t, services: s, scope: sc, transport: tp}
	q.Messages = query.Define(g, "listenerMessage", func(a, b *listenerv3.Listener) bool { return proto.Equal(a, b) },
		func(r *query.Reader, k Place) (*listenerv3.Listener, bool) {
			l, _ := q.message(r, k)
			return l, l != nil
		})
	base := query.Define(g, "listener", layer.Equal, q.base)
	q.Base = query.Each(g, "listeners", func(r *query.Reader, k Shape) omap.Map[service.Address, omap.Unit] {
		return transport.Taken(k.Direct, s.Taken).Keys(r, service.All{})
	}, base, func(k Shape, at service.Address) addressAll { return addressAll{k, at} })
	scoped := query.Define(g, "scopedListener", layer.Equal, q.scoped)
	q.Scoped = query.Each(g, "scopedListeners", func(r *query.Reader, k In) omap.Map[service.Address, omap.Unit] {
		return transport.Taken(k.Direct, sc.Taken).Keys(r, k.Set)
	}, scoped, func(k In, at service.Address) addressIn { return addressIn{k, at} })
	labelled := query.Define(g, "labelledListener", layer.Equal, q.labelled)
	q.Labelled = query.Each(g, "labelledListeners", func(r *query.Reader, k For) omap.Map[service.Address, omap.Unit] {
		return transport.Taken(k.Direct, sc.Labelled).Keys(r, k.Labelled)
	}, labelled, func(k For, at service.Address) Place { return Place{k, at} })
	q.Virtual = query.Define(g, "virtualOutbound", Map.Equal, q.virtual)
	q.Proxies = query.Define(g, "httpProxies", Map.Equal, q.proxies)
	q.Inbound = query.Define(g, "inboundListeners", Map.Equal, q.inbound)
	return q
}

// name is the listener at an address; where nothing redirects, all are on the loopback address.
func name(direct bool, at service.Address) (name, ip string) {
	ip = at.IP
	switch {
	case ip == "" && direct:
		ip = envoy.Loopback
	case ip == "":
		ip = envoy.Wildcard
	}
	return envoy.ListenerName(ip, at.Port), ip
}

// content is what a listener is made of.
type content struct {
	Shape
	at      service.Address
	plan    *transport.Plan
	unknown state.Outbound
	http    state.HTTPSettings
	wait    time.Duration // for the first bytes
	log     state.AccessLog
}

// Place is where a listener is, and for whom: without a set, for all.
type Place struct {
	For
	At service.Address
}

// message is the listener of a place before it is encoded, nil if there is none. differs is false for callers who have no
// other than a wider layer says.
func (q *Queries) message(r *query.Reader, k Place) (l *listenerv3.Listener, differs bool) {
	c := content{Shape: k.Shape, at: k.At, unknown: q.scope.Outbound(r, k.Set)}
	switch {
	case k.Set == (scope.Set{}):
		c.plan, differs = q.transport.Base(r, transport.All{Direct: k.Direct, At: k.At})
	case k.Labels.Empty() && k.Rules == (traffic.Rules{}):
		c.plan, differs = q.transport.Scoped(r, transport.In{Set: k.Set, Direct: k.Direct, At: k.At})
	default:
		c.plan, differs = q.transport.Labelled(r, transport.For{Labelled: k.Labelled, Direct: k.Direct, At: k.At})
	}
	if !differs {
		return nil, false
	}
	c.log = q.accessLog(r, k.DefaultLog)
	if c.plan.HTTP {
		c.http = q.tables.HTTPSettings(r)
	}
	if c.plan.HTTP || c.plan.Inspects() {
		c.wait = q.tables.DetectionTimeout(r)
	}
	return c.listener(), true
}

// encode makes a listener what is sent: all listeners come by here.
func encode(l *listenerv3.Listener) *resource.Resource {
	return resource.New(resource.Listener, l.Name, l)
}

func encoded(l *listenerv3.Listener) ([]*resource.Resource, bool) {
	if l == nil {
		return nil, false
	}
	return []*resource.Resource{encode(l)}, true
}

func (q *Queries) base(r *query.Reader, k addressAll) ([]*resource.Resource, bool) {
	l, _ := q.message(r, Place{For{Shape: k.Shape}, k.at})
	return encoded(l)
}

func (q *Queries) scoped(r *query.Reader, k addressIn) ([]*resource.Resource, bool) {
	l, differs := q.message(r, Place{For{scope.Labelled{Set: k.Set}, k.Shape}, k.at})
	if differs && l == nil && k.Set.Overlay() {
		n, _ := name(k.Direct, k.at)
		return []*resource.Resource{resource.Hide(n)}, true
	}
	return encoded(l)
}

// labelled is the listener at an address for callers with labels, if any of these matters there.
func (q *Queries) labelled(r *query.Reader, k Place) ([]*resource.Resource, bool) {
	l, _ := q.message(r, k)
	return encoded(l)
}

// listener is the listener, nil if there is nothing for it to do.
func (c content) listener() *listenerv3.Listener {
	name, ip := name(c.Direct, c.at)
	bound := c.plan.Bound
	if !c.plan.Wanted() || mesh.Reserved(c.at.Port, bound) && (bound || ip == envoy.Wildcard) {
		return nil
	}
	l := envoy.Listener(name, ip, c.at.Port, envoy.Outbound, bound)
	if c.plan.Inspects() {
		envoy.SniffTLS(l)
	}
	for i := range c.plan.Rules {
		rule := &c.plan.Rules[i]
		m := &listenerv3.FilterChainMatch{ServerNames: rule.Names}
		envoy.MatchAddresses(m, rule.Blocks)
		l.FilterChains = append(l.FilterChains, envoy.Chain("", m, forward(rule)...))
	}
	if c.plan.HTTP {
		envoy.SniffHTTP(l)
		options := httpOptions(c.http, c.HTTP10, "")
		options.ByName = c.plan.ByName || c.unknown.Mode == state.ByName
		options.Web = c.plan.Web
		http := envoy.HTTPByName("outbound_"+name, c.routes(), options)
		l.FilterChains = append(l.FilterChains, envoy.Chain("", envoy.MatchHTTP(c.HTTP10), http))
	}
	if len(l.ListenerFilters) > 0 {
		envoy.DetectWithin(l, c.wait)
	}
	switch {
	case c.plan.Rest != nil && len(l.FilterChains) == 0:
		l.FilterChains = []*listenerv3.FilterChain{envoy.Chain("", nil, forward(c.plan.Rest)...)}
	case c.plan.Rest != nil:
		l.DefaultFilterChain = envoy.Chain("", nil, forward(c.plan.Rest)...)
	case !bound: // a proxy that is not redirected to does not know where else a connection was going
		l.DefaultFilterChain = envoy.Chain(envoy.PassthroughChain, nil, unknown(c.unknown))
	}
	logAccess(c.log, l)
	return l
}

// routes is the name of the route configuration for what is HTTP.
func (c content) routes() string {
	if own := c.plan.Own; own.Host != "" {
		return envoy.SniffedRouteName(own.Host, own.Port)
	}
	return envoy.RouteName(c.at.Port)
}

// forward sends connections where a rule says.
func forward(rule *transport.Rule) []*listenerv3.Filter {
	if len(rule.To) == 1 {
		to := rule.To[0]
		cluster := clusterOf(to)
		proxy := envoy.TCPForward(cluster, cluster, carried(rule.Conduct))
		if to.ByName && len(rule.Names) > 0 {
			return []*listenerv3.Filter{envoy.DynamicName(to.Port), proxy}
		}
		return []*listenerv3.Filter{proxy}
	}
	list := make([]envoy.Weighted, 0, len(rule.To))
	for _, d := range rule.To {
		list = append(list, envoy.Weighted{Cluster: clusterOf(d), Weight: d.Weight})
	}
	return []*listenerv3.Filter{envoy.TCPSplit(rule.Stat, list, carried(rule.Conduct))}
}

func carried(c transport.Conduct) envoy.TCP {
	return envoy.TCP{Idle: c.Idle, Lifetime: c.Lifetime, BySource: c.BySource, Tunnel: c.Target, Post: c.Post}
}

func clusterOf(d transport.Destination) string {
	if d.Host == "" {
		return envoy.BlackHoleCluster
	}
	return envoy.OutboundCluster(d.Port, d.Subset, d.Host)
}

// httpOptions are how requests are taken; server is the name in responses where the mesh says nothing.
func httpOptions(s state.HTTPSettings, old bool, server string) envoy.HTTPOptions {
	if s.Server != "" {
		server = s.Server
	}
	return envoy.HTTPOptions{
		Old: old, NormalizePath: s.NormalizePath, MergeSlashes: s.MergeSlashes, DecodeSlashes: s.Slashes == state.DecodeSlashes,
		KeepServer: s.KeepServer, Server: server, NoRequestID: s.NoRequestID, NoDebugHeaders: s.NoDebugHeaders, KeepCase: s.KeepCase,
	}
}

// accessLog is the mesh's, or the same in the default format.
func (q *Queries) accessLog(r *query.Reader, defaultFormat bool) state.AccessLog {
	log := q.tables.AccessLog(r)
	if defaultFormat {
		log.Format = ""
	}
	return log
}

// logAccess makes listeners log what they forward, if the mesh says so.
func logAccess(log state.AccessLog, list ...*listenerv3.Listener) {
	if log.File == "" {
		return
	}
	write := envoy.TextLog
	if log.JSON {
		write = envoy.JSONLog
	}
	for _, l := range list {
		envoy.Log(l, write(log.File, log.Format), !log.NoListeners)
	}
}

// unknown is what happens to connections that are for nobody who was declared.
func unknown(o state.Outbound) *listenerv3.Filter {
	cluster := envoy.PassingCluster(o.Port, o.Subset, o.Host)
	if o.Mode == state.RegistryOnly {
		cluster = envoy.BlackHoleCluster
	}
	return envoy.TCPProxy(cluster, cluster)
}
