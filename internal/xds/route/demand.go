package route

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// byDomain finds the virtual hosts of the route configuration of a port by a domain. All classes of an audience share its index, which exists only while some
// sidecar gets its hosts on demand.
type byDomain struct {
	everyone, own query.Groups[portKey, omap.Name, omap.Name]
}

func (q *Queries) defineByDomain(g *query.Graph) {
	domains := func(p *resource.Piece, add func(omap.Name, omap.Name)) {
		for _, d := range p.Domains() {
			add(omap.Name(d), omap.Name(p.Name()))
		}
	}
	q.byDomain = byDomain{query.GroupBy(g, "virtualHostsByDomain", q.hosts.everyone, domains), query.GroupBy(g, "scopedVirtualHostsByDomain", q.hosts.own, domains)}
}

// WithDomain returns the names of the virtual hosts that have a domain in some layer of a route configuration, as an audience sees it. An upper layer
// may have a virtual host of the same name without the domain, or hide it.
func (q *Queries) WithDomain(r *query.Reader, a scope.Audience, name, domain string) (list []omap.Name) {
	port, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		return nil
	}
	for over := true; over; a, over = a.Wider() {
		hosts := q.byDomain.own
		if a.IsEveryone() {
			hosts = q.byDomain.everyone
		}
		for n := range hosts.Group(r, portKey{Audience: a, Place: exposure.PortNumber(port)}, omap.Name(domain)).All() {
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
