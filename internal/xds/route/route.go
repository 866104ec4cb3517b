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

// portKey names the route configuration of a port as an audience sees it.
type portKey = layer.At[exposure.PortNumber]

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
	// host is an encoded virtual host. hosts are the virtual hosts of ports.
	host       query.Query[virtualHostKey, []*resource.Piece]
	hosts      layers[exposure.PortNumber]
	proxyHosts httpProxyHosts
	byDomain   byDomain
	// Configurations are the route configurations of ports. For an audience narrower than everyone they are the ones that differ.
	Configurations query.Collection[scope.Audience, *resource.Resource]
	// Sniffed are the configurations for everyone of ports with protocol detection at addresses of a host's own, and OwnSniffed the ones that differ for a
	// narrower audience.
	Sniffed    query.Collection[service.All, *resource.Resource]
	OwnSniffed query.Collection[Dedicated, *resource.Resource]
	// HTTPProxies are the route configurations of the clients' HTTP proxies; see scope.HTTPProxy.
	HTTPProxies query.Query[scope.Audience, Map]
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
	hosts := func(r *query.Reader, k portKey) scope.Hosts {
		return sc.ByAudience.HTTPPorts.Group(r, k.Audience, k.Place)
	}
	q.hosts.everyone = query.Each(g, "virtualHosts", hosts, q.host, func(k portKey, name omap.Name) virtualHostKey {
		return virtualHostKey{HostView: service.HostView{Host: string(name)}, Port: uint32(k.Place), Families: k.Set().Families}
	})
	q.hosts.own = layer.Keyed[exposure.PortNumber, virtualHostKey, omap.Name, *resource.Piece]{
		Results: q.host, Elements: hosts, Hide: resource.HidePiece,
		Keys: func(r *query.Reader, k portKey, host omap.Name) []virtualHostKey {
			return q.hostFor(r, string(host), uint32(k.Place), onPorts(k.Audience))
		},
	}.Own(g, "scopedVirtualHost")
	configuration := query.Define(g, "routeConfiguration", layer.Equal, q.configurationFor)
	q.Configurations = query.Each(g, "routeConfigurations", func(r *query.Reader, a scope.Audience) omap.Map[exposure.PortNumber, omap.Unit] {
		return sc.ByAudience.HTTPPorts.Keys(r, a)
	}, configuration, func(a scope.Audience, port exposure.PortNumber) portKey { return portKey{Audience: a, Place: port} })
	q.defineSniffed(g, s, sc)
	q.defineHTTPProxies(g, s, sc)
	q.defineGateways(g)
	q.defineByDomain(g)
	return q
}

// hostFor is the key of the virtual host that an audience has for a host on a port; none if no domain is left for it there. in is the table that the virtual
// host is in.
func (q *Queries) hostFor(r *query.Reader, host string, port uint32, in domainTable) []virtualHostKey {
	if host == "" {
		return nil // the empty name asks only for the route configuration of the port
	}
	a, set := in.Audience, in.Set()
	at := virtualHostKey{HostView: q.scope.View(r, scope.HostInSet{Host: host, Set: set}), Port: port, Families: set.Families}
	if !in.IsEveryone() {
		in.Audience = a.Unlabelled() // labels matter to no domain
		var ok bool
		if at, ok = q.withDomains(r, at, in); !ok {
			return nil
		}
	}
	return []virtualHostKey{q.forLabels(r, at, a)}
}

// forLabels is the key of a virtual host for an audience, with the labels and rules of it that matter to the host.
func (q *Queries) forLabels(r *query.Reader, at virtualHostKey, a scope.Audience) virtualHostKey {
	if !a.Labelled() {
		return at
	}
	at.Labels = q.traffic.RelevantLabels(r, at.HostView, a.Labels(), (*state.VirtualService).RequestLabels)
	rules := q.traffic.RulesForHost(r, a.Rules(), at.Host)
	if hasConsistentHash(q.traffic.PolicyFor(r, at.HostView, rules)) {
		at.Rules = rules
	}
	return at
}

// configurationFor is the route configuration of a port for an audience; absent if the configuration of the next wider audience applies.
func (q *Queries) configurationFor(r *query.Reader, k portKey) ([]*resource.Resource, bool) {
	outbound := q.scope.Outbound(r, k.Set())
	if k.IsEveryone() {
		return q.configuration(r, k.Place, q.hosts.everyone.Get(r, k), nil, outbound), true
	}
	own := q.hosts.own.Get(r, k)
	wider, over := k.Wider()
	if !over {
		return q.configuration(r, k.Place, own, nil, outbound), true
	}
	if own.Len() == 0 && (k.Labelled() || k.OfBaseView() || q.inBaseView(r, k.Place)) {
		return nil, false
	}
	return q.configuration(r, k.Place, q.hosts.pieces(r, portKey{Audience: wider, Place: k.Place}), overlayChanges(own), outbound), true
}

// inBaseView reports whether the base view has a route configuration for a port. Other ports may be only in a set.
func (q *Queries) inBaseView(r *query.Reader, port exposure.PortNumber) bool {
	return q.services.Index.HTTPPorts.Group(r, service.All{}, port).Len() > 0
}

// layers are the virtual hosts at places of one kind: the ones for everyone, and the ones that differ for a narrower audience.
type layers[P comparable] struct {
	everyone, own query.Collection[layer.At[P], *resource.Piece]
}

// pieces are the virtual hosts at a place for an audience.
func (l layers[P]) pieces(r *query.Reader, k layer.At[P]) hostPieces {
	if k.IsEveryone() {
		return l.everyone.Get(r, k)
	}
	own := l.own.Get(r, k)
	wider, over := k.Wider()
	if !over {
		return own
	}
	return omap.With(l.pieces(r, layer.At[P]{Audience: wider, Place: k.Place}), overlayChanges(own)...)
}

// cell returns the cell that yields a virtual host at a place for an audience.
func (l layers[P]) cell(k layer.At[P], piece string) (query.ID, bool) {
	for over := true; over; {
		if k.IsEveryone() {
			return l.everyone.Element(k, omap.Name(piece))
		}
		if id, ok := l.own.Element(k, omap.Name(piece)); ok {
			return id, true
		}
		k.Audience, over = k.Wider()
	}
	return 0, false
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
func (q *Queries) configuration(r *query.Reader, at exposure.PortNumber, pieces hostPieces, changes []pieceChange, outbound settings.Outbound) []*resource.Resource {
	port := uint32(at)
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

// VirtualHostCell returns the cell that yields one virtual host of a route configuration for an audience.
func (q *Queries) VirtualHostCell(a scope.Audience, name, piece string) (query.ID, bool) {
	port, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		return q.proxyHostCell(a, name, piece)
	}
	return q.hosts.cell(portKey{Audience: a, Place: exposure.PortNumber(port)}, piece)
}
