package route

import (
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state/settings"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Map is a set of resources by name.
type Map = omap.Map[omap.Name, *resource.Resource]

// proxyKey names an HTTP proxy of an audience by its number; see scope.HTTPProxy.
type proxyKey = layer.At[int]

// proxyHostKey names a host at an HTTP proxy of a set.
type proxyHostKey struct {
	proxyKey
	host string
}

// httpProxyHosts are the virtual hosts of HTTP proxies. A request to an HTTP proxy names the port, so each HTTP port of a
// host has a virtual host in the same route configuration.
type httpProxyHosts struct {
	layers[int]
	// domains groups the hosts of an HTTP proxy by the domains that they ask for.
	domains query.Groups[proxyKey, exposure.Domain, exposure.Candidate]
}

// defineHTTPProxies defines the route configurations of HTTP proxies.
func (q *Queries) defineHTTPProxies(g *query.Graph, s *service.Queries, sc *scope.Queries) {
	at := query.Define(g, "proxiedHost", layer.Equal, func(r *query.Reader, k virtualHostKey) (list []*resource.Piece, _ bool) {
		for _, of := range q.proxiedHostFor(r, proxyKey{Audience: scope.Everyone(k.Families)}, omap.Name(k.Host)) {
			more, _ := q.host.Get(r, of)
			list = append(list, more...)
		}
		return list, len(list) > 0
	})
	q.proxyHosts.everyone = query.Each(g, "proxiedHosts", func(r *query.Reader, _ proxyKey) scope.Hosts {
		return s.PublicHosts(r)
	}, at, func(k proxyKey, name omap.Name) virtualHostKey {
		return virtualHostKey{HostView: service.HostView{Host: string(name)}, Families: k.Set().Families}
	})
	footprint := query.Define(g, "proxiedFootprint", exposure.Equal, func(r *query.Reader, k proxyHostKey) ([]exposure.Footprint, bool) {
		f, ok := sc.HTTPProxyFootprint(r, scope.HostInSet{Host: k.host, Set: k.Set()}, k.Place)
		return []exposure.Footprint{f}, ok
	})
	footprints := query.Each(g, "proxiedFootprints", q.proxiedHosts, footprint, func(k proxyKey, name omap.Name) proxyHostKey { return proxyHostKey{k, string(name)} })
	q.proxyHosts.domains = exposure.DefineDomains(g, "proxied.domains", footprints)
	q.proxyHosts.own = layer.Keyed[int, virtualHostKey, omap.Name, *resource.Piece]{
		Results: q.host, Elements: q.proxiedHosts, Keys: q.proxiedHostFor, Hide: resource.HidePiece,
	}.Own(g, "scopedProxiedHost")
	q.HTTPProxies = query.Define(g, "proxiedRoutes", Map.Equal, q.httpProxyRoutes)
}

// proxiedHosts are the hosts that an audience may see differently at an HTTP proxy than the next wider one.
func (q *Queries) proxiedHosts(r *query.Reader, k proxyKey) scope.Hosts {
	switch {
	case k.Labelled():
		return q.scope.LabelledHosts(r, k.Audience)
	case k.OfBaseView():
		return q.services.PublicHosts(r)
	}
	return q.scope.HostsWithShortNames(r, k.Set())
}

// proxiedHostFor are the keys of the virtual hosts of a host at an HTTP proxy: one for each of its HTTP ports.
func (q *Queries) proxiedHostFor(r *query.Reader, k proxyKey, name omap.Name) (keys []virtualHostKey) {
	host := scope.HostInSet{Host: string(name), Set: k.Set()}
	var f exposure.Footprint
	if k.OfBaseView() {
		f, _ = q.services.Footprint(r, service.HostView{Host: host.Host})
	} else {
		f, _ = q.scope.HTTPProxyFootprint(r, host, k.Place)
	}
	for _, port := range f.HTTPPorts {
		for _, at := range q.hostFor(r, host.Host, port, domainTable{k, true}) {
			at.WithPort = true
			keys = append(keys, at)
		}
	}
	return keys
}

// httpProxyRoutes are the route configurations of the HTTP proxies of an audience.
func (q *Queries) httpProxyRoutes(r *query.Reader, a scope.Audience) (Map, bool) {
	set := a.Set()
	outbound := q.scope.Outbound(r, set)
	var changes []omap.Change[omap.Name, *resource.Resource]
	for _, p := range q.scope.HTTPProxies(r, set.Sidecar) {
		name := envoy.ProxyRouteName(p.Number)
		pieces := q.proxyHosts.pieces(r, proxyKey{Audience: a, Place: p.Number})
		changes = append(changes, omap.Put(omap.Name(name), proxyConfiguration(name, pieces, outbound, q.tables.RouteSettings(r))))
	}
	return omap.With(Map{}, changes...), true
}

func proxyConfiguration(name string, pieces hostPieces, outbound settings.Outbound, s settings.RouteSettings) *resource.Resource {
	c := envoy.RouteConfiguration(name)
	c.IgnorePortInHostMatching = false
	if !pieces.Has(omap.Name(pieceName("*", httpPort))) {
		pieces = omap.With(pieces, unknownHost(outbound, s))
	}
	return resource.NewRoute(name, c, pieces)
}

// httpPort is the port of requests that do not name one.
const httpPort = 80

// domainsWithPort are the domains as requests to an HTTP proxy name them.
func domainsWithPort(domains []string, port uint32) []string {
	var out []string
	for _, d := range domains {
		if port == httpPort {
			out = append(out, d)
		}
		out = append(out, d+":"+strconv.FormatUint(uint64(port), 10))
	}
	return out
}

// proxyHostCell returns the cell that yields one virtual host of an HTTP proxy.
func (q *Queries) proxyHostCell(a scope.Audience, name, piece string) (query.ID, bool) {
	rest, ok := strings.CutPrefix(name, envoy.ProxyRouteName(0))
	number, err := strconv.Atoi(strings.TrimPrefix(rest, "_"))
	if !ok || err != nil && rest != "" {
		return 0, false
	}
	return q.proxyHosts.cell(proxyKey{Audience: a, Place: number}, piece)
}
