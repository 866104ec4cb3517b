// Package route translates the routes of hosts into virtual hosts and route configurations.
//
// It owns which virtual hosts exist, which domains each has, and what a rule becomes. A virtual host is a piece that is
// encoded once; a route configuration is assembled from pieces that are never copied. The package starts no goroutines.
package route

import (
	"slices"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/settings"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// hostPieces are virtual hosts by name.
type hostPieces = omap.Map[omap.Name, *resource.Piece]

// virtualHostKey names a virtual host: a host as a view sees it, on a port.
type virtualHostKey struct {
	service.HostView
	Port uint32
	// Domains are its domains, if they differ from those in the base view.
	Domains intern.List[string]
	// Labels are the clients' labels that the host's rules match.
	Labels mesh.Labels
	// Rules are the DestinationRules that select the clients, if they set consistent hashing.
	Rules traffic.SelectingRules
	// Families are the IP versions of the clients, who can use the addresses of these versions as names.
	Families mesh.Families
	// WithPort says that requests name the host with the port, as at an HTTP proxy.
	WithPort bool
}

// basePortKey names the route configuration of a port in the base view.
type basePortKey struct {
	port     uint32
	families mesh.Families
}

// setHostKey names a host as a set sees it, on a port.
type setHostKey struct {
	scope.HostInSet
	port uint32
}

// setPortKey names the route configuration of a port in a set.
type setPortKey struct {
	set  scope.Set
	port uint32
}

// Queries are the layers of route configurations.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	traffic  *traffic.Queries
	scope    *scope.Queries
	gateways *gateway.Queries
	target   query.Query[targetKey, target]
	// messages are virtual hosts before they are encoded, for readers that look into them. A cell exists only while
	// something reads it: encoding does not.
	messages query.Query[virtualHostKey, *routev3.VirtualHost]
	// host is an encoded virtual host. hosts, scoped and labelled are the virtual hosts of a port in the base view, in a
	// set and for clients with labels.
	host     query.Query[virtualHostKey, []*resource.Piece]
	hosts    query.Collection[basePortKey, *resource.Piece]
	scoped   query.Collection[setPortKey, *resource.Piece]
	labelled query.Collection[labelledPortKey, *resource.Piece]
	// clusterHosts are the virtual hosts of a port in the base view that differ in a cluster.
	clusterHosts query.Collection[clusterPortKey, *resource.Piece]
	proxyHosts   httpProxyHosts
	byDomain     byDomain
	// Base are the route configurations of the base view, Scoped of a set, Labelled of clients with labels. ByCluster are
	// configurations of the base view that differ in a cluster, because services have other addresses there.
	Base      query.Collection[mesh.Families, *resource.Resource]
	ByCluster query.Collection[Reach, *resource.Resource]
	Scoped    query.Collection[scope.Set, *resource.Resource]
	Labelled  query.Collection[scope.LabelledClients, *resource.Resource]
	// Sniffed, ScopedSniffed and LabelledSniffed are likewise the configurations of ports with protocol detection at
	// addresses of a host's own.
	Sniffed         query.Collection[service.All, *resource.Resource]
	ScopedSniffed   query.Collection[scope.Set, *resource.Resource]
	LabelledSniffed query.Collection[scope.LabelledClients, *resource.Resource]
	// HTTPProxies are the route configurations of the clients' HTTP proxies; see scope.HTTPProxy.
	HTTPProxies query.Query[scope.LabelledClients, Map]
	// Gateways are the route configurations of gateways, and gatewayHosts the virtual hosts of one gateway.
	Gateways     query.Collection[gateway.Proxies, *resource.Resource]
	gatewayHosts query.Collection[gatewayTableKey, *resource.Piece]
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, tr *traffic.Queries, sc *scope.Queries, gw *gateway.Queries) *Queries {
	q := &Queries{tables: t, services: s, traffic: tr, scope: sc, gateways: gw}
	q.target = query.Define(g, "routeTarget", target.equal, q.targetOf)
	q.messages = query.Define(g, "virtualHostMessage", func(a, b *routev3.VirtualHost) bool { return proto.Equal(a, b) }, q.message)
	q.host = query.Define(g, "virtualHost", layer.Equal, q.virtualHost)
	q.hosts = query.Each(g, "virtualHosts", func(r *query.Reader, k basePortKey) scope.Hosts {
		return s.Index.HTTPPorts.Group(r, service.All{}, exposure.PortNumber(k.port))
	}, q.host, func(k basePortKey, name omap.Name) virtualHostKey {
		return virtualHostKey{HostView: service.HostView{Host: string(name)}, Port: k.port, Families: k.families}
	})
	q.defineByCluster(g, s)
	elem := query.Define(g, "scopedVirtualHost", layer.Equal, q.virtualHostIn)
	q.scoped = query.Each(g, "scopedVirtualHosts", func(r *query.Reader, k setPortKey) scope.Hosts {
		return sc.Index.HTTPPorts.Group(r, k.set, exposure.PortNumber(k.port))
	}, elem, func(k setPortKey, name omap.Name) setHostKey {
		return setHostKey{scope.HostInSet{Host: string(name), Set: k.set}, k.port}
	})
	base := query.Define(g, "routeConfiguration", layer.Equal, q.base)
	q.Base = query.Each(g, "routeConfigurations", func(r *query.Reader, _ mesh.Families) omap.Map[exposure.PortNumber, omap.Unit] {
		return s.Index.HTTPPorts.Keys(r, service.All{})
	}, base, func(f mesh.Families, port exposure.PortNumber) basePortKey { return basePortKey{uint32(port), f} })
	scoped := query.Define(g, "scopedRouteConfiguration", layer.Equal, q.routesIn)
	q.Scoped = query.Each(g, "scopedRouteConfigurations", func(r *query.Reader, k scope.Set) omap.Map[exposure.PortNumber, omap.Unit] {
		return sc.Index.HTTPPorts.Keys(r, k)
	}, scoped, func(k scope.Set, port exposure.PortNumber) setPortKey { return setPortKey{k, uint32(port)} })
	q.defineLabelled(g)
	q.defineSniffed(g, s, sc)
	q.defineHTTPProxies(g, s, sc)
	q.defineGateways(g)
	q.defineByDomain(g)
	return q
}

// virtualHostIn is the virtual host of a host in the layer of a set.
func (q *Queries) virtualHostIn(r *query.Reader, k setHostKey) ([]*resource.Piece, bool) {
	if k.Host == "" {
		return nil, false // the empty name asks only for the route configuration of the port
	}
	at, ok := q.setHostOf(r, k)
	var list []*resource.Piece
	if ok {
		list, _ = q.host.Get(r, at)
	}
	if k.Set.Overlay() {
		base := q.baseHost(r, k.Host, k.port, k.Set)
		if layer.Equal(list, base) {
			return nil, false
		}
		list = layer.HideMissing(list, base, resource.HidePiece)
	}
	return list, len(list) > 0
}

// setHostOf is the key of a host as a set sees it. ok is false if no domain is left for it.
func (q *Queries) setHostOf(r *query.Reader, k setHostKey) (at virtualHostKey, ok bool) {
	return q.withDomains(r, virtualHostKey{HostView: q.scope.View(r, k.HostInSet), Port: k.port, Families: k.Set.Families}, domainTable{setProxyKey: setProxyKey{set: k.Set}})
}

func (q *Queries) base(r *query.Reader, k basePortKey) ([]*resource.Resource, bool) {
	return q.configuration(r, k.port, q.hosts.Get(r, k), nil, settings.Outbound{Mode: q.tables.OutboundMode(r)}), true
}

func (q *Queries) routesIn(r *query.Reader, k setPortKey) ([]*resource.Resource, bool) {
	pieces, mode := q.scoped.Get(r, k), q.scope.Outbound(r, k.set)
	if !k.set.Overlay() {
		return q.configuration(r, k.port, pieces, nil, mode), true
	}
	if pieces.Len() == 0 && q.services.Index.HTTPPorts.Group(r, service.All{}, exposure.PortNumber(k.port)).Len() > 0 {
		return nil, false // the route configuration of the base view applies
	}
	return q.configuration(r, k.port, q.basePieces(r, k.port, k.set), overlayChanges(pieces), mode), true
}

type pieceChange = omap.Change[omap.Name, *resource.Piece]

// overlayChanges are the changes that lay pieces over others.
func overlayChanges(top hostPieces) []pieceChange {
	changes := make([]pieceChange, 0, top.Len()+1)
	for name, p := range top.All() {
		if p.Hidden() {
			changes = append(changes, omap.Del[omap.Name, *resource.Piece](name))
		} else {
			changes = append(changes, omap.Put(name, p))
		}
	}
	return changes
}

// configuration is the route configuration of a port. Its cost depends on the number of changes, not of all pieces.
func (q *Queries) configuration(r *query.Reader, port uint32, pieces hostPieces, changes []pieceChange, outbound settings.Outbound) []*resource.Resource {
	name := envoy.RouteName(port)
	// A declared host "*" already takes all requests. Envoy refuses a route configuration with a second virtual host for
	// "*".
	if all := omap.Name(pieceName("*", port)); !pieces.Has(all) && !slices.ContainsFunc(changes, func(c pieceChange) bool { return c.Key == all }) {
		changes = append(changes, unknownHost(outbound, q.tables.RouteSettings(r)))
	}
	return []*resource.Resource{resource.NewRoute(name, envoy.RouteConfiguration(name), omap.With(pieces, changes...))}
}

// unknownHost is the virtual host for undeclared hosts.
func unknownHost(o settings.Outbound, s settings.RouteSettings) pieceChange {
	host := envoy.BlockAllHost()
	switch o.Mode {
	case settings.AllowAny:
		host = envoy.AllowAnyHost(envoy.UnknownTrafficCluster(o.Port, o.Subset, o.Host))
	case settings.ByName:
		host = envoy.DynamicUnknownHost()
	}
	host.IncludeRequestAttemptCount = !s.HideAttempts
	return omap.Put(omap.Name(host.Name), encode(host.Name, host))
}

// encode turns a virtual host into a piece. All virtual hosts are encoded here.
func encode(name string, vhost *routev3.VirtualHost) *resource.Piece {
	return resource.PieceOf(name, vhost)
}

func (q *Queries) virtualHost(r *query.Reader, k virtualHostKey) ([]*resource.Piece, bool) {
	vhost, ok := q.message(r, k)
	if !ok {
		return nil, false
	}
	return []*resource.Piece{encode(pieceName(k.Host, k.Port), vhost)}, true
}

// message is a virtual host before it is encoded.
func (q *Queries) message(r *query.Reader, k virtualHostKey) (*routev3.VirtualHost, bool) {
	s, declared := q.services.Service.Get(r, k.HostView)
	var port mesh.Port
	if declared {
		port, declared = s.Port(k.Port)
		declared = declared && (port.Protocol.IsHTTP() || port.Protocol.Sniffed())
		if !declared {
			return nil, false
		}
	} else if f, _ := q.services.Footprint(r, k.HostView); !slices.Contains(f.HTTPPorts, k.Port) {
		return nil, false
	}
	b := builder{q: q, r: r, key: k}
	b.addRules()
	if len(b.routes) == 0 {
		if !declared {
			return nil, false
		}
		b.addDefault()
	}
	domains := k.Domains.Items()
	if len(domains) == 0 {
		f, _ := q.services.Footprint(r, k.HostView)
		domains = q.domainsOf(r, k, f, domainTable{})
	}
	if len(domains) == 0 {
		return nil, false
	}
	if k.WithPort {
		domains = domainsWithPort(domains, k.Port)
	}
	vhost := envoy.VirtualHost(envoy.VirtualHostName(k.Host, k.Port), domains, b.routes...)
	vhost.IncludeRequestAttemptCount = !b.settings.HideAttempts
	return vhost, true
}

// pieceName is the host with its labels reversed, and the port. It orders pieces by domain, so that the hosts of a
// namespace are neighbours and an overlay over them touches few chunks of the map.
func pieceName(host string, port uint32) string {
	labels := strings.Split(host, ".")
	slices.Reverse(labels)
	return envoy.VirtualHostName(strings.Join(labels, "."), port)
}

// PieceNames returns the names under which a route configuration may have a virtual host.
func PieceNames(virtualHost string) []string {
	at := strings.LastIndexByte(virtualHost, ':')
	if at < 0 {
		return []string{virtualHost}
	}
	labels := strings.Split(virtualHost[:at], ".")
	slices.Reverse(labels)
	return []string{strings.Join(labels, ".") + virtualHost[at:], virtualHost}
}

// VirtualHostCell returns the cell that yields one virtual host of a route configuration for clients of a set.
func (q *Queries) VirtualHostCell(k scope.LabelledClients, name, piece string) (query.ID, bool) {
	port, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		return q.proxyHostCell(k, name, piece)
	}
	if id, ok := q.labelled.Element(labelledPortKey{k, uint32(port)}, omap.Name(piece)); ok {
		return id, true
	}
	if id, ok := q.scoped.Element(setPortKey{k.Set, uint32(port)}, omap.Name(piece)); ok {
		return id, true
	}
	if k.Set.Cluster != "" {
		if id, ok := q.clusterHosts.Element(clusterPortKey{uint32(port), reachOf(k.Set)}, omap.Name(piece)); ok {
			return id, true
		}
	}
	return q.hosts.Element(basePortKey{uint32(port), k.Set.Families}, omap.Name(piece))
}
