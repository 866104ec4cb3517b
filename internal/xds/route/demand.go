package route

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// byDomain finds the virtual hosts of the route configuration of a port by a domain. There is an index for each layer, which all classes with this layer
// share. It exists only while some sidecar gets its hosts on demand.
type byDomain struct {
	base     query.Groups[basePortKey, omap.Name, omap.Name]
	scoped   query.Groups[setPortKey, omap.Name, omap.Name]
	labelled query.Groups[labelledPortKey, omap.Name, omap.Name]
	cluster  query.Groups[clusterPortKey, omap.Name, omap.Name]
}

func (q *Queries) defineByDomain(g *query.Graph) {
	domains := func(p *resource.Piece, add func(omap.Name, omap.Name)) {
		for _, d := range p.Domains() {
			add(omap.Name(d), omap.Name(p.Name()))
		}
	}
	q.byDomain = byDomain{
		base: query.GroupBy(g, "virtualHostsByDomain", q.hosts, domains), scoped: query.GroupBy(g, "scopedVirtualHostsByDomain", q.scoped, domains),
		labelled: query.GroupBy(g, "labelledVirtualHostsByDomain", q.labelled, domains), cluster: query.GroupBy(g, "clusterVirtualHostsByDomain", q.clusterHosts, domains),
	}
}

// WithDomain returns the names of the virtual hosts that have a domain in some layer of a route configuration, as clients with labels see it. An upper layer
// may have a virtual host of the same name without the domain, or hide it.
func (q *Queries) WithDomain(r *query.Reader, k scope.LabelledClients, name, domain string) (list []omap.Name) {
	number, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		return nil
	}
	port, d := uint32(number), omap.Name(domain)
	layers := []omap.Map[omap.Name, omap.Unit]{
		q.byDomain.labelled.Group(r, labelledPortKey{k, port}, d), q.byDomain.scoped.Group(r, setPortKey{k.Set, port}, d),
	}
	if k.Set.Overlay() {
		layers = append(layers, q.byDomain.base.Group(r, basePortKey{port, k.Set.Families}, d))
		if k.Set.Cluster != "" {
			layers = append(layers, q.byDomain.cluster.Group(r, clusterPortKey{port, reachOf(k.Set)}, d))
		}
	}
	for _, l := range layers {
		for n := range l.All() {
			if !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
	}
	if domain == "*" {
		list = append(list, envoy.AllowAny, envoy.BlockAll, envoy.AllowAnyByName)
	}
	return list
}

// DomainsFor returns the domains by which a virtual host takes requests with an authority, in the order in which Envoy looks for them. The authority is in
// lower case. A port in it does not matter.
func DomainsFor(authority string) []string {
	host := authority
	if at := strings.LastIndexByte(host, ':'); at >= 0 && strings.Trim(host[at+1:], "0123456789") == "" && !strings.HasSuffix(host[:at], ":") &&
		(!strings.Contains(host[:at], ":") || strings.HasSuffix(host[:at], "]")) {
		host = host[:at]
	}
	list := []string{host}
	for i := 1; i < len(host); i++ {
		if host[i] == '.' {
			list = append(list, "*"+host[i:])
		}
	}
	return append(list, "*")
}
