package route

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// Envoy refuses a route configuration in which two virtual hosts share a domain. Each domain of a table has one owner:
//
//   - A host owns its own name.
//   - A short name of a cluster host belongs to the cluster host, unless the table has a host of that name.
//   - An address belongs to the oldest host in the table that has it, Services of Kubernetes clusters first; among equally old ones to
//     the first by name.
//
// An overlay keeps the virtual hosts of the base view that look the same in it. An address that such a host owns in the base
// view therefore remains its own, even if an older host of the overlay has it. A short name cannot remain that way: package
// scope puts a cluster host into the overlay of each namespace that sees other declarations of its short names.

// domainTable names the virtual hosts among which each domain has one owner: the hosts of a set's ports, or of an
// HTTP proxy. The zero value is the base view.
type domainTable struct {
	proxyKey
	httpProxy bool
}

// onPorts is the table of the hosts on the ports of an audience.
func onPorts(a scope.Audience) domainTable { return domainTable{proxyKey: proxyKey{Audience: a}} }

// withDomains returns the key with the domains of the host in a table. ok is false if it has none.
func (q *Queries) withDomains(r *query.Reader, at virtualHostKey, in domainTable) (_ virtualHostKey, ok bool) {
	f, _ := q.services.Footprint(r, at.HostView)
	names := q.domainsOf(r, at, f, in)
	if !slices.Equal(names, q.domainsOf(r, at, f, domainTable{})) {
		at.Domains = intern.Of(names...)
	}
	return at, len(names) > 0
}

// domainsOf are the domains of a host in a table; f is the footprint of the host. There are none if its requests are not
// recognised by their Host header there.
func (q *Queries) domainsOf(r *query.Reader, at virtualHostKey, f exposure.Footprint, in domainTable) []string {
	var names, addresses []string
	set := in.Set()
	if set.Overlay() && !slices.Contains(f.HTTPPorts, at.Port) { // it differs from the base view in that, or only its base is asked for
		return nil
	}
	s, ok := q.services.Service.Get(r, at.HostView)
	for _, ip := range f.VIPs {
		if ok && !slices.Contains(s.AddressesFor(at.Families, set.Cluster), ip) {
			continue
		}
		if q.addressOwner(r, in, exposure.Domain{Name: ip, Port: at.Port}, at.Families) == at.Host {
			addresses = append(addresses, envoy.AddressDomain(ip))
		}
	}
	if _, err := netip.ParseAddr(at.Host); err != nil { // otherwise it is one of the addresses
		names = append(names, at.Host)
		if !mesh.IsWildcard(at.Host) {
			names = append(names, at.Host+".")
		}
	}
	contested := q.shortNameDeclared(r, at.Host)
	for _, short := range mesh.ShortNames(at.Host, q.tables.Domain()) {
		if !contested || q.owner(r, in, exposure.Domain{Name: short, Port: at.Port}) == "" {
			names = append(names, short)
		}
	}
	if q.scope.AllowsBareName(scope.HostInSet{Host: at.Host, Set: set}) {
		bare, _, _ := strings.Cut(at.Host, ".")
		if q.tables.ByHost.Group(r, bare).Len() == 0 || q.owner(r, in, exposure.Domain{Name: bare, Port: at.Port}) == "" {
			names = append(names, bare)
		}
	}
	if ok {
		names = append(names, q.aliasNames(r, at.HostView, set)...)
	}
	if ok && s.Headless {
		names = q.withPodNames(r, names)
	}
	return append(names, addresses...)
}

// aliasNames are the names of the aliases of a host, for the clients of a set. Names that are another host's are left out.
func (q *Queries) aliasNames(r *query.Reader, v service.HostView, set scope.Set) []string {
	var names []string
	for _, alias := range q.services.Aliases(r, v) {
		names = append(names, alias.Host, alias.Host+".")
		short := mesh.ShortNames(alias.Host, q.tables.Domain())
		if bare, _, _ := strings.Cut(alias.Host, "."); set.ShortNames && alias.Namespace == set.Namespace {
			short = append(short, bare)
		}
		for _, name := range short {
			if q.services.Unclaimed(r, name, alias.Namespace) {
				names = append(names, name)
			}
		}
	}
	return names
}

// withPodNames adds the names of the pods of a headless Service, which are below each of its names and of its aliases, unless some
// object declares them.
func (q *Queries) withPodNames(r *query.Reader, names []string) []string {
	for _, name := range slices.Clone(names) {
		if pods := "*." + name; q.tables.ByHost.Group(r, strings.TrimSuffix(pods, ".")).Len() == 0 {
			names = append(names, pods)
		}
	}
	return names
}

// shortNameDeclared reports whether some object declares a short name of a cluster host as a host.
func (q *Queries) shortNameDeclared(r *query.Reader, host string) bool {
	for c := range q.tables.ByHost.Group(r, host).All() {
		if c.Kind == claim.Short {
			return true
		}
	}
	return false
}

// owner is the host of a table that gets an address or short name. It is empty if there is none.
func (q *Queries) owner(r *query.Reader, in domainTable, at exposure.Domain) string {
	return q.firstOwner(r, in, at, oldest)
}

// addressOwner is the host of a table that gets an address. A service that has the address in another cluster only does not ask for it,
// and one whose addresses are all of another cluster comes last.
func (q *Queries) addressOwner(r *query.Reader, in domainTable, at exposure.Domain, f mesh.Families) string {
	return q.firstOwner(r, in, at, func(candidates omap.Map[exposure.Candidate, omap.Unit]) string {
		if candidates.Len() < 2 {
			return oldest(candidates)
		}
		foreign, compared, set := "", 0, in.Set()
		for c := range candidates.All() {
			if compared++; compared > maxOwners {
				break
			}
			s, ok := q.services.Service.Get(r, q.scope.View(r, scope.HostInSet{Host: c.Host, Set: set}))
			switch {
			case foreign != "" && !c.IsService():
				return foreign
			case !ok || !s.ByFamily:
				return c.Host
			case !slices.Contains(s.AddressesFor(f, set.Cluster), at.Name):
			case !s.Foreign(set.Cluster):
				return c.Host
			case foreign == "":
				foreign = c.Host
			}
		}
		return foreign
	})
}

// maxOwners bounds how many hosts with the same address are considered.
const maxOwners = 40

// firstOwner is the host of a table that gets an address or short name, if first chooses among several candidates.
func (q *Queries) firstOwner(r *query.Reader, in domainTable, at exposure.Domain, first func(omap.Map[exposure.Candidate, omap.Unit]) string) string {
	set := in.Set()
	switch {
	case !set.Overlay() && in.httpProxy:
		return first(q.proxyHosts.domains.Group(r, in.proxyKey, at))
	case !set.Overlay():
		return first(q.scope.Index.Domains.Group(r, set, at))
	}
	base := first(q.services.Index.Domains.Group(r, service.All{}, at))
	if set.Namespace == "" || base != "" && q.scope.Viewer(r, base, set.Namespace) == "" {
		return base
	}
	// If the owner in the base view looks different in this set, the domain is free for all hosts that look different.
	return first(q.scope.Index.Domains.Group(r, set, at))
}

// oldest is the first of the candidates; empty if there is none. Hosts that only have it in the base view come last.
func oldest(candidates omap.Map[exposure.Candidate, omap.Unit]) string {
	for c := range candidates.All() {
		if c.Created != exposure.OnlyInBase {
			return c.Host
		}
	}
	return ""
}
