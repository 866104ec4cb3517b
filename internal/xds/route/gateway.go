package route

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	gateways "github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// gatewayTableKey names a route configuration of gateways, and gatewayHostKey a host in it.
type gatewayTableKey struct {
	gateway.Proxies
	name string
}

type gatewayHostKey struct {
	gatewayTableKey
	host string
}

// defineGateways defines the route configurations of gateways. There is one cell per virtual host.
func (q *Queries) defineGateways(g *query.Graph) {
	host := query.Define(g, "gatewayVirtualHost", layer.Equal, q.gatewayHost)
	q.gatewayHosts = query.Each(g, "gatewayVirtualHosts", func(r *query.Reader, k gatewayTableKey) omap.Map[omap.Name, omap.Unit] {
		return q.gateways.VirtualHosts(r, k.Table(k.name))
	}, host, func(k gatewayTableKey, name omap.Name) gatewayHostKey { return gatewayHostKey{k, string(name)} })
	table := query.Define(g, "gatewayRouteConfiguration", layer.Equal, func(r *query.Reader, k gatewayTableKey) ([]*resource.Resource, bool) {
		pieces := q.gatewayHosts.Get(r, k)
		if pieces.Len() == 0 {
			pieces = omap.With(pieces, noRoutes())
		}
		c := envoy.RouteConfiguration(k.name)
		if port := q.gateways.HTTP3Port(r, k.Table(k.name)); port != 0 {
			envoy.OfferHTTP3(c, port)
		}
		return []*resource.Resource{resource.NewRoute(k.name, c, pieces)}, true
	})
	q.Gateways = query.Each(g, "gatewayRouteConfigurations", func(r *query.Reader, p gateway.Proxies) omap.Map[omap.Name, omap.Unit] {
		return q.gateways.Tables(r, p.Served)
	}, table, func(p gateway.Proxies, name omap.Name) gatewayTableKey { return gatewayTableKey{p, string(name)} })
}

// noRoutes is the virtual host of a route configuration without any other. It answers 404, as Envoy does for hosts that it does not know.
func noRoutes() pieceChange {
	host := envoy.NoRoutesHost()
	return omap.Put(omap.Name(host.Name), encode(host.Name, host))
}

// gatewayHost is the virtual host of a host at gateways: the routes of all VirtualServices and Ingresses for it, in the order of
// precedence. Routes that match every request come last, so that none hides the routes of another object.
func (q *Queries) gatewayHost(r *query.Reader, k gatewayHostKey) ([]*resource.Piece, bool) {
	var routes, last []*routev3.Route
	var port uint32
	redirects := false
	s := q.tables.RouteSettings(r)
	var done []string // patterns whose Ingresses have their routes
	for u := range q.gateways.Uses(r, k.Table(k.name), k.host).All() {
		if port == 0 {
			port = u.Port
		}
		if u.Object == (api.Key{}) || u.Rules != "" && slices.Contains(done, u.Rules) {
			redirects = redirects || u.Redirects
			continue
		}
		done = append(done, u.Rules)
		b := builder{q: q, r: r, gateway: u.Gateway, secure: u.Secure, settings: s, key: virtualHostKey{
			HostView: service.HostView{Host: k.host, Viewer: k.Namespace}, Port: u.Port, Labels: k.Labels, Rules: k.Rules,
		}}
		b.addUse(u)
		redirects = redirects || u.Redirects && len(b.routes) > 0
		for _, route := range b.routes {
			if matchesAll(route.Match) {
				last = append(last, route)
			} else {
				routes = append(routes, route)
			}
		}
	}
	if routes = append(routes, last...); len(routes) == 0 && !redirects {
		return nil, false
	}
	vhost := envoy.VirtualHost(envoy.VirtualHostName(k.host, port), []string{k.host}, routes...)
	vhost.IncludeRequestAttemptCount = !s.HideAttempts
	if k.Table(k.name).Shared() {
		envoy.OnlyOwnHost(vhost, k.host)
	}
	if redirects {
		vhost.RequireTls = routev3.VirtualHost_ALL
	}
	return []*resource.Piece{encode(pieceName(k.host, port), vhost)}, true
}

// addUse adds the routes of a VirtualService, or of all Ingresses for a pattern.
func (b *builder) addUse(u gateway.Use) {
	if u.Rules == "" {
		if vs, ok := b.q.gateways.Rules(b.r, u.Object); ok {
			b.addObject(vs)
		}
		return
	}
	h, ok := b.q.gateways.Host(b.r, u.Rules)
	if !ok {
		return
	}
	for _, rule := range h.Rules {
		if rule.Winner == (api.Key{}) && !rule.LeftOut() {
			b.addPath(rule)
		}
	}
}

// addPath adds the route of a rule of an Ingress.
func (b *builder) addPath(rule gateway.Rule) {
	to := &networking.Destination{Host: rule.Target, Port: &networking.PortSelector{Number: rule.Port}}
	match := envoy.MatchAll()
	switch rule.Match {
	case gateways.ExactPath:
		match.PathSpecifier = &routev3.RouteMatch_Path{Path: rule.Path}
	case gateways.PathSegments:
		match.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: rule.Path}
	case gateways.AnyPath:
	}
	all := &networking.HTTPRoute{Route: []*networking.HTTPRouteDestination{{Destination: to}}}
	b.add(&state.VirtualService{Object: rule.Object}, all, &routev3.Route{Match: match})
}

// GatewayHostCell returns the cell that yields one virtual host of a route configuration of gateways.
func (q *Queries) GatewayHostCell(p gateway.Proxies, name, piece string) (query.ID, bool) {
	return q.gatewayHosts.Element(gatewayTableKey{p, name}, omap.Name(piece))
}
