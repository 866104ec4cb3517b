// Package route translates the routes of hosts into virtual hosts and route configurations.
//
// It owns which virtual hosts exist, under which names a host answers, and what a rule becomes. A virtual host is a
// piece that is encoded once; a route configuration is put together from pieces that are never copied. The package
// starts no goroutines; it must not import other translators, the store or sources.
package route

import (
	"slices"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Pieces are virtual hosts by name.
type Pieces = omap.Map[omap.Name, *resource.Piece]

// host names a virtual host: a host as a view sees it, on a port.
type host struct {
	service.View
	Port uint32
	// Names are the names it answers to, if those are others than in the eyes of all.
	Names intern.List[string]
	// Labels are those of the callers' labels that the host's rules name.
	Labels mesh.Labels
	// Rules are the DestinationRules that select the callers, if by these a request chooses the endpoint.
	Rules traffic.Rules
	// Proxied says that requests name the host with its port.
	Proxied bool
}

type hostIn struct {
	scope.HostIn
	port uint32
}

type portIn struct {
	set  scope.Set
	port uint32
}

// Queries are the route configurations.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	traffic  *traffic.Queries
	scope    *scope.Queries
	target   *query.Query[reached, target]
	// messages are virtual hosts as they are before they are encoded, for who has to look into them. A host has such a cell
	// only while something reads it: to encode it does without.
	messages *query.Query[host, *routev3.VirtualHost]
	host     *query.Query[host, []*resource.Piece]
	hosts    *query.Collection[uint32, *resource.Piece]
	scoped   *query.Collection[portIn, *resource.Piece]
	labelled *query.Collection[portFor, *resource.Piece]
	proxied  proxied
	// Base are the route configurations of what all see; Scoped those of a set; Labelled those of callers with labels.
	Base     *query.Collection[service.All, *resource.Resource]
	Scoped   *query.Collection[scope.Set, *resource.Resource]
	Labelled *query.Collection[scope.Labelled, *resource.Resource]
	// Sniffed, ScopedSniffed and LabelledSniffed are likewise those of sniffed ports at addresses of a host's own.
	Sniffed         *query.Collection[service.All, *resource.Resource]
	ScopedSniffed   *query.Collection[scope.Set, *resource.Resource]
	LabelledSniffed *query.Collection[scope.Labelled, *resource.Resource]
	// Proxied are those of the HTTP proxies of callers; see scope.HTTPProxies.
	Proxied *query.Query[scope.Labelled, Map]
}

// Define adds the queries.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, tr *traffic.Queries, sc *scope.Queries) *Queries {
	q := &Queries{tables: t, services: s, traffic: tr, scope: sc}
	q.target = query.Define(g, "routeTarget", target.equal, q.targetOf)
	q.messages = query.Define(g, "virtualHostMessage", func(a, b *routev3.VirtualHost) bool { return proto.Equal(a, b) }, q.message)
	q.host = query.Define(g, "virtualHost", layer.Equal, q.virtualHost)
	q.hosts = query.Each(g, "virtualHosts", func(r *query.Reader, port uint32) scope.Hosts {
		return s.Taken.HTTP.Group(r, service.All{}, service.Number(port))
	}, q.host, func(port uint32, name omap.Name) host {
		return host{View: service.View{Host: string(name)}, Port: port}
	})
	elem := query.Define(g, "scopedVirtualHost", layer.Equal, q.virtualHostIn)
	q.scoped = query.Each(g, "scopedVirtualHosts", func(r *query.Reader, k portIn) scope.Hosts {
		return sc.Taken.HTTP.Group(r, k.set, service.Number(k.port))
	}, elem, func(k portIn, name omap.Name) hostIn {
		return hostIn{scope.HostIn{Host: string(name), Set: k.set}, k.port}
	})
	base := query.Define(g, "routeConfiguration", layer.Equal, q.base)
	q.Base = query.Each(g, "routeConfigurations", func(r *query.Reader, _ service.All) omap.Map[service.Number, omap.Unit] {
		return s.Taken.HTTP.Keys(r, service.All{})
	}, base, func(_ service.All, port service.Number) uint32 { return uint32(port) })
	scoped := query.Define(g, "scopedRouteConfiguration", layer.Equal, q.routesIn)
	q.Scoped = query.Each(g, "scopedRouteConfigurations", func(r *query.Reader, k scope.Set) omap.Map[service.Number, omap.Unit] {
		return sc.Taken.HTTP.Keys(r, k)
	}, scoped, func(k scope.Set, port service.Number) portIn { return portIn{k, uint32(port)} })
	q.defineLabelled(g)
	q.defineSniffed(g, s, sc)
	q.defineProxied(g, s, sc)
	return q
}

// virtualHostIn is a host's entry in a set.
func (q *Queries) virtualHostIn(r *query.Reader, k hostIn) ([]*resource.Piece, bool) {
	if k.Host == "" {
		return nil, false // it only asks for the routes of the port
	}
	at, ok := q.hostOf(r, k)
	var list []*resource.Piece
	if ok {
		list, _ = q.host.Get(r, at)
	}
	if k.Set.Overlay() {
		base, _ := q.host.Get(r, host{View: service.View{Host: k.Host}, Port: k.port})
		if layer.Equal(list, base) {
			return nil, false
		}
		list = layer.Cover(list, base, resource.HidePiece)
	}
	return list, len(list) > 0
}

// hostOf is a host as a set sees it; ok is false if no name is left to it.
func (q *Queries) hostOf(r *query.Reader, k hostIn) (at host, ok bool) {
	return q.named(r, host{View: q.scope.View(r, k.HostIn), Port: k.port}, table{proxyIn: proxyIn{set: k.Set}})
}

func (q *Queries) base(r *query.Reader, port uint32) ([]*resource.Resource, bool) {
	return q.configuration(r, port, q.hosts.Get(r, port), nil, state.Outbound{Mode: q.tables.OutboundMode(r)}), true
}

func (q *Queries) routesIn(r *query.Reader, k portIn) ([]*resource.Resource, bool) {
	pieces, mode := q.scoped.Get(r, k), q.scope.Outbound(r, k.set)
	if !k.set.Overlay() {
		return q.configuration(r, k.port, pieces, nil, mode), true
	}
	if pieces.Len() == 0 && q.services.Taken.HTTP.Group(r, service.All{}, service.Number(k.port)).Len() > 0 {
		return nil, false // the base's will do
	}
	return q.configuration(r, k.port, q.hosts.Get(r, k.port), over(pieces), mode), true
}

type change = omap.Change[omap.Name, *resource.Piece]

// over are the changes that lay pieces over others.
func over(top Pieces) []change {
	changes := make([]change, 0, top.Len()+1)
	for name, p := range top.All() {
		if p.Hidden() {
			changes = append(changes, omap.Del[omap.Name, *resource.Piece](name))
		} else {
			changes = append(changes, omap.Put(name, p))
		}
	}
	return changes
}

// configuration is the route configuration of a port. Its cost is that of the changes, not of the pieces.
func (q *Queries) configuration(r *query.Reader, port uint32, pieces Pieces, changes []change, outbound state.Outbound) []*resource.Resource {
	name := envoy.RouteName(port)
	// A host of "*" is for everybody already; a second virtual host for that would make Envoy refuse all of them.
	if all := omap.Name(pieceName("*", port)); !pieces.Has(all) && !slices.ContainsFunc(changes, func(c change) bool { return c.Key == all }) {
		changes = append(changes, unknown(outbound, q.tables.RouteSettings(r)))
	}
	return []*resource.Resource{resource.NewRoute(name, envoy.Routes(name), pieces.With(changes...))}
}

// unknown is the virtual host for hosts nobody declared.
func unknown(o state.Outbound, s state.RouteSettings) change {
	host := envoy.Refused()
	switch o.Mode {
	case state.AllowAny:
		host = envoy.Passed(envoy.PassingCluster(o.Port, o.Subset, o.Host))
	case state.ByName:
		host = envoy.UnknownByName()
	}
	host.IncludeRequestAttemptCount = !s.HideAttempts
	return omap.Put(omap.Name(host.Name), encode(host.Name, host))
}

// encode makes a virtual host what is sent: all virtual hosts come by here.
func encode(name string, vhost *routev3.VirtualHost) *resource.Piece {
	return resource.PieceOf(name, vhost)
}

func (q *Queries) virtualHost(r *query.Reader, k host) ([]*resource.Piece, bool) {
	vhost, ok := q.message(r, k)
	if !ok {
		return nil, false
	}
	return []*resource.Piece{encode(pieceName(k.Host, k.Port), vhost)}, true
}

// message is a virtual host before it is encoded.
func (q *Queries) message(r *query.Reader, k host) (*routev3.VirtualHost, bool) {
	s, declared := q.services.Service.Get(r, k.View)
	var port mesh.Port
	if declared {
		port, declared = s.Port(k.Port)
		declared = declared && (port.Protocol.IsHTTP() || port.Protocol.Sniffed())
		if !declared {
			return nil, false
		}
	} else if f, _ := q.services.Footprint(r, k.View); !slices.Contains(f.HTTP, k.Port) {
		return nil, false
	}
	b := builder{q: q, r: r, at: k}
	b.rules()
	if len(b.routes) == 0 {
		if !declared {
			return nil, false
		}
		b.byDefault()
	}
	domains := k.Names.Items()
	if len(domains) == 0 {
		domains = q.names(r, k, table{})
	}
	if len(domains) == 0 {
		return nil, false
	}
	if k.Proxied {
		domains = withPort(domains, k.Port)
	}
	vhost := envoy.VirtualHost(envoy.VirtualHostName(k.Host, k.Port), domains, b.routes...)
	vhost.IncludeRequestAttemptCount = !b.settings.HideAttempts
	return vhost, true
}

// pieceName orders the pieces of a route configuration by domain, outermost first, so that the hosts of a namespace lie
// side by side: an overlay over them then touches few chunks of the map.
func pieceName(host string, port uint32) string {
	labels := strings.Split(host, ".")
	slices.Reverse(labels)
	return envoy.VirtualHostName(strings.Join(labels, "."), port)
}

// Cell finds the cell that yields one virtual host of a route configuration, as callers of a set see it.
func (q *Queries) Cell(k scope.Labelled, name, piece string) (query.ID, bool) {
	port, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		return q.proxiedCell(k, name, piece)
	}
	if id, ok := q.labelled.Element(portFor{k, uint32(port)}, omap.Name(piece)); ok {
		return id, true
	}
	if id, ok := q.scoped.Element(portIn{k.Set, uint32(port)}, omap.Name(piece)); ok {
		return id, true
	}
	return q.hosts.Element(uint32(port), omap.Name(piece))
}
