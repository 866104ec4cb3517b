package route

import (
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
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

// setProxyKey names an HTTP proxy of a set; see scope.HTTPProxy.
type setProxyKey struct {
	set    scope.Set
	number int
}

// labelledProxyKey names an HTTP proxy for clients with labels.
type labelledProxyKey struct {
	scope.LabelledClients
	number int
}

// setProxyHostKey names a host at an HTTP proxy of a set.
type setProxyHostKey struct {
	setProxyKey
	host string
}

// labelledProxyHostKey names a host at an HTTP proxy for clients with labels.
type labelledProxyHostKey struct {
	labelledProxyKey
	host string
}

// httpProxyHosts are the virtual hosts of HTTP proxies. A request to an HTTP proxy names the port, so each HTTP port of a
// host has a virtual host in the same route configuration.
type httpProxyHosts struct {
	base     query.Collection[mesh.Families, *resource.Piece]
	scoped   query.Collection[setProxyKey, *resource.Piece]
	labelled query.Collection[labelledProxyKey, *resource.Piece]
	// domains groups the hosts of an HTTP proxy by the domains that they ask for.
	domains query.Groups[setProxyKey, exposure.Domain, exposure.Candidate]
}

// defineHTTPProxies defines the route configurations of HTTP proxies.
func (q *Queries) defineHTTPProxies(g *query.Graph, s *service.Queries, sc *scope.Queries) {
	at := query.Define(g, "proxiedHost", layer.Equal, func(r *query.Reader, k virtualHostKey) ([]*resource.Piece, bool) {
		f, _ := s.Footprint(r, k.HostView)
		list := q.proxyVirtualHosts(r, f, func(port uint32) (virtualHostKey, bool) {
			return virtualHostKey{HostView: k.HostView, Port: port, Families: k.Families}, true
		})
		return list, len(list) > 0
	})
	q.proxyHosts.base = query.Each(g, "proxiedHosts", func(r *query.Reader, _ mesh.Families) scope.Hosts {
		return s.PublicHosts(r)
	}, at, func(f mesh.Families, name omap.Name) virtualHostKey {
		return virtualHostKey{HostView: service.HostView{Host: string(name)}, Families: f}
	})
	named := func(r *query.Reader, k setProxyKey) scope.Hosts { return sc.HostsWithShortNames(r, k.set) }
	key := func(k setProxyKey, name omap.Name) setProxyHostKey { return setProxyHostKey{k, string(name)} }
	footprint := query.Define(g, "proxiedFootprint", exposure.Equal, func(r *query.Reader, k setProxyHostKey) ([]exposure.Footprint, bool) {
		f, ok := sc.HTTPProxyFootprint(r, scope.HostInSet{Host: k.host, Set: k.set}, k.number)
		return []exposure.Footprint{f}, ok
	})
	footprints := query.Each(g, "proxiedFootprints", named, footprint, key)
	q.proxyHosts.domains = exposure.DefineDomains(g, "proxied.domains", footprints)
	scoped := query.Define(g, "scopedProxiedHost", layer.Equal, func(r *query.Reader, k setProxyHostKey) ([]*resource.Piece, bool) {
		f, _ := sc.HTTPProxyFootprint(r, scope.HostInSet{Host: k.host, Set: k.set}, k.number)
		list := q.proxyVirtualHosts(r, f, func(port uint32) (virtualHostKey, bool) { return q.proxyHostOf(r, k, port) })
		if k.set.Overlay() {
			base, _ := at.Get(r, virtualHostKey{HostView: service.HostView{Host: k.host}, Families: k.set.Families})
			if layer.Equal(list, base) {
				return nil, false
			}
			list = layer.HideMissing(list, base, resource.HidePiece)
		}
		return list, len(list) > 0
	})
	q.proxyHosts.scoped = query.Each(g, "scopedProxiedHosts", named, scoped, key)
	labelled := query.Define(g, "labelledProxiedHost", layer.Equal, func(r *query.Reader, k labelledProxyHostKey) ([]*resource.Piece, bool) {
		in := setProxyHostKey{setProxyKey{k.Set, k.number}, k.host}
		f, _ := sc.HTTPProxyFootprint(r, scope.HostInSet{Host: k.host, Set: k.Set}, k.number)
		list := q.proxyVirtualHosts(r, f, func(port uint32) (virtualHostKey, bool) {
			at, ok := q.proxyHostOf(r, in, port)
			if !ok {
				return virtualHostKey{}, false
			}
			return q.forClients(r, at, k.LabelledClients)
		})
		return list, len(list) > 0
	})
	q.proxyHosts.labelled = query.Each(g, "labelledProxiedHosts", func(r *query.Reader, k labelledProxyKey) scope.Hosts {
		return sc.LabelledHosts(r, k.LabelledClients)
	}, labelled, func(k labelledProxyKey, name omap.Name) labelledProxyHostKey {
		return labelledProxyHostKey{k, string(name)}
	})
	q.HTTPProxies = query.Define(g, "proxiedRoutes", Map.Equal, q.httpProxyRoutes)
}

// proxyVirtualHosts are the virtual hosts for the HTTP ports of a host. on returns the key for a port, or false if there
// is none.
func (q *Queries) proxyVirtualHosts(r *query.Reader, f exposure.Footprint, on func(port uint32) (at virtualHostKey, ok bool)) []*resource.Piece {
	var out []*resource.Piece
	for _, port := range f.HTTPPorts {
		if at, ok := on(port); ok {
			at.WithPort = true
			list, _ := q.host.Get(r, at)
			out = append(out, list...)
		}
	}
	return out
}

// proxyHostOf is the key of a host at an HTTP proxy. ok is false if no domain is left for it.
func (q *Queries) proxyHostOf(r *query.Reader, k setProxyHostKey, port uint32) (at virtualHostKey, ok bool) {
	view := q.scope.View(r, scope.HostInSet{Host: k.host, Set: k.set})
	return q.withDomains(r, virtualHostKey{HostView: view, Port: port, Families: k.set.Families}, domainTable{setProxyKey: k.setProxyKey, httpProxy: true})
}

// httpProxyRoutes are the route configurations of the HTTP proxies of clients, who may have labels.
func (q *Queries) httpProxyRoutes(r *query.Reader, k scope.LabelledClients) (Map, bool) {
	outbound := q.scope.Outbound(r, k.Set)
	var changes []omap.Change[omap.Name, *resource.Resource]
	for _, p := range q.scope.HTTPProxies(r, k.Set.Sidecar) {
		pieces := q.proxyHosts.scoped.Get(r, setProxyKey{k.Set, p.Number})
		if k.Set.Overlay() {
			pieces = omap.With(q.proxyHosts.base.Get(r, k.Set.Families), overlayChanges(pieces)...)
		}
		if !k.Labels.Empty() || !k.Rules.Names.Empty() {
			pieces = omap.With(pieces, overlayChanges(q.proxyHosts.labelled.Get(r, labelledProxyKey{k, p.Number}))...)
		}
		name := envoy.ProxyRouteName(p.Number)
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
func (q *Queries) proxyHostCell(k scope.LabelledClients, name, piece string) (query.ID, bool) {
	rest, ok := strings.CutPrefix(name, envoy.ProxyRouteName(0))
	number, err := strconv.Atoi(strings.TrimPrefix(rest, "_"))
	if !ok || err != nil && rest != "" {
		return 0, false
	}
	if id, ok := q.proxyHosts.labelled.Element(labelledProxyKey{k, number}, omap.Name(piece)); ok {
		return id, true
	}
	if id, ok := q.proxyHosts.scoped.Element(setProxyKey{k.Set, number}, omap.Name(piece)); ok {
		return id, true
	}
	return q.proxyHosts.base.Element(k.Set.Families, omap.Name(piece))
}
