package route

import (
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Map is a set of resources by name.
type Map = omap.Map[omap.Name, *resource.Resource]

// proxyIn names an HTTP proxy of a set, proxyFor likewise for callers with labels.
type proxyIn struct {
	set    scope.Set
	number int
}

type proxyFor struct {
	scope.Labelled
	number int
}

type proxiedIn struct {
	proxyIn
	host string
}

type proxiedFor struct {
	proxyFor
	host string
}

// proxied are the virtual hosts behind HTTP proxies: a request names the port there, so each port of a host has one.
type proxied struct {
	base     *query.Collection[service.All, *resource.Piece]
	scoped   *query.Collection[proxyIn, *resource.Piece]
	labelled *query.Collection[proxyFor, *resource.Piece]
	// names groups the hosts of a proxy by the domains they want.
	names *query.Groups[proxyIn, service.Domain, service.Claimant]
}

// defineProxied adds the route configurations of HTTP proxies.
func (q *Queries) defineProxied(g *query.Graph, s *service.Queries, sc *scope.Queries) {
	at := query.Define(g, "proxiedHost", layer.Equal, func(r *query.Reader, k host) ([]*resource.Piece, bool) {
		f, _ := s.Footprint(r, k.View)
		list := q.proxiedHost(r, f, func(port uint32) (host, bool) { return host{View: k.View, Port: port}, true })
		return list, len(list) > 0
	})
	q.proxied.base = query.Each(g, "proxiedHosts", func(r *query.Reader, _ service.All) scope.Hosts {
		return s.PublicHosts(r)
	}, at, func(_ service.All, name omap.Name) host { return host{View: service.View{Host: string(name)}} })
	named := func(r *query.Reader, k proxyIn) scope.Hosts { return sc.Named(r, k.set) }
	key := func(k proxyIn, name omap.Name) proxiedIn { return proxiedIn{k, string(name)} }
	footprint := query.Define(g, "proxiedFootprint", service.EqualFootprints, func(r *query.Reader, k proxiedIn) ([]service.Footprint, bool) {
		f, ok := sc.Proxied(r, scope.HostIn{Host: k.host, Set: k.set}, k.number)
		return []service.Footprint{f}, ok
	})
	footprints := query.Each(g, "proxiedFootprints", named, footprint, key)
	q.proxied.names = service.DefineNames(g, "proxied.domains", footprints)
	scoped := query.Define(g, "scopedProxiedHost", layer.Equal, func(r *query.Reader, k proxiedIn) ([]*resource.Piece, bool) {
		f, _ := sc.Proxied(r, scope.HostIn{Host: k.host, Set: k.set}, k.number)
		list := q.proxiedHost(r, f, func(port uint32) (host, bool) { return q.proxiedOf(r, k, port) })
		if k.set.Overlay() {
			base, _ := at.Get(r, host{View: service.View{Host: k.host}})
			if layer.Equal(list, base) {
				return nil, false
			}
			list = layer.Cover(list, base, resource.HidePiece)
		}
		return list, len(list) > 0
	})
	q.proxied.scoped = query.Each(g, "scopedProxiedHosts", named, scoped, key)
	labelled := query.Define(g, "labelledProxiedHost", layer.Equal, func(r *query.Reader, k proxiedFor) ([]*resource.Piece, bool) {
		in := proxiedIn{proxyIn{k.Set, k.number}, k.host}
		f, _ := sc.Proxied(r, scope.HostIn{Host: k.host, Set: k.Set}, k.number)
		list := q.proxiedHost(r, f, func(port uint32) (host, bool) {
			at, ok := q.proxiedOf(r, in, port)
			if !ok {
				return host{}, false
			}
			return q.callers(r, at, k.Labelled)
		})
		return list, len(list) > 0
	})
	q.proxied.labelled = query.Each(g, "labelledProxiedHosts", func(r *query.Reader, k proxyFor) scope.Hosts {
		return sc.LabelledHosts(r, k.Labelled)
	}, labelled, func(k proxyFor, name omap.Name) proxiedFor { return proxiedFor{k, string(name)} })
	q.Proxied = query.Define(g, "proxiedRoutes", Map.Equal, q.proxiedRoutes)
}

// proxiedHost are the virtual hosts of a host's HTTP ports; on yields that of a port, if it has one.
func (q *Queries) proxiedHost(r *query.Reader, f service.Footprint, on func(port uint32) (at host, ok bool)) []*resource.Piece {
	var out []*resource.Piece
	for _, port := range f.HTTP {
		if at, ok := on(port); ok {
			at.Proxied = true
			list, _ := q.host.Get(r, at)
			out = append(out, list...)
		}
	}
	return out
}

// proxiedOf is a host as callers of a proxy see it; ok is false if no name is left to it.
func (q *Queries) proxiedOf(r *query.Reader, k proxiedIn, port uint32) (at host, ok bool) {
	view := q.scope.View(r, scope.HostIn{Host: k.host, Set: k.set})
	return q.named(r, host{View: view, Port: port}, table{proxyIn: k.proxyIn, proxied: true})
}

// proxiedRoutes are the route configurations of the HTTP proxies of callers, who may have labels.
func (q *Queries) proxiedRoutes(r *query.Reader, k scope.Labelled) (Map, bool) {
	outbound := q.scope.Outbound(r, k.Set)
	var changes []omap.Change[omap.Name, *resource.Resource]
	for _, p := range q.scope.HTTPProxies(r, k.Set.Sidecar) {
		pieces := q.proxied.scoped.Get(r, proxyIn{k.Set, p.Number})
		if k.Set.Overlay() {
			pieces = q.proxied.base.Get(r, service.All{}).With(over(pieces)...)
		}
		if !k.Labels.Empty() || !k.Rules.Names.Empty() {
			pieces = pieces.With(over(q.proxied.labelled.Get(r, proxyFor{k, p.Number}))...)
		}
		name := envoy.ProxyRouteName(p.Number)
		changes = append(changes, omap.Put(omap.Name(name), proxiedConfiguration(name, pieces, outbound, q.tables.RouteSettings(r))))
	}
	return Map{}.With(changes...), true
}

func proxiedConfiguration(name string, pieces Pieces, outbound state.Outbound, s state.RouteSettings) *resource.Resource {
	c := envoy.Routes(name)
	c.IgnorePortInHostMatching = false
	if !pieces.Has(omap.Name(pieceName("*", httpPort))) {
		pieces = pieces.With(unknown(outbound, s))
	}
	return resource.NewRoute(name, c, pieces)
}

// httpPort is the port of requests that name none.
const httpPort = 80

// withPort are names as requests to a proxy have them.
func withPort(domains []string, port uint32) []string {
	var out []string
	for _, d := range domains {
		if port == httpPort {
			out = append(out, d)
		}
		out = append(out, d+":"+strconv.FormatUint(uint64(port), 10))
	}
	return out
}

// proxiedCell finds the cell that yields one virtual host of an HTTP proxy.
func (q *Queries) proxiedCell(k scope.Labelled, name, piece string) (query.ID, bool) {
	rest, ok := strings.CutPrefix(name, envoy.ProxyRouteName(0))
	number, err := strconv.Atoi(strings.TrimPrefix(rest, "_"))
	if !ok || err != nil && rest != "" {
		return 0, false
	}
	if id, ok := q.proxied.labelled.Element(proxyFor{k, number}, omap.Name(piece)); ok {
		return id, true
	}
	if id, ok := q.proxied.scoped.Element(proxyIn{k.Set, number}, omap.Name(piece)); ok {
		return id, true
	}
	return q.proxied.base.Element(service.All{}, omap.Name(piece))
}
