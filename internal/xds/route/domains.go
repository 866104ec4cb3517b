package route

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// Envoy refuses a route configuration two of whose virtual hosts share a domain. Each domain of a table has one owner:
//
//   - A host owns its own name.
//   - A short name of a cluster host is the cluster host's, unless the table has a host that is called so.
//   - An address belongs to the oldest host in the table that has it; of equally old ones to the first by name.
//
// An overlay keeps the virtual hosts of the base that look the same in it. So there an address that such a host owns in the
// base stays its own, also if an older host of the overlay has it. A short name cannot be kept that way: scope puts a
// cluster host into the overlay of each namespace that sees other declarations of its short names.

// table names the virtual hosts among which each domain has one owner: those of ports as a set sees them, or those of an
// HTTP proxy. The zero table is what all see.
type table struct {
	proxyIn
	proxied bool
}

// named is a host with the names it answers to in a table; ok is false if none is left to it.
func (q *Queries) named(r *query.Reader, at host, in table) (_ host, ok bool) {
	names := q.names(r, at, in)
	if !slices.Equal(names, q.names(r, at, table{})) {
		at.Names = intern.Of(names...)
	}
	return at, len(names) > 0
}

// names are the names to which a host answers in a table; none if its requests are not told by their Host there.
func (q *Queries) names(r *query.Reader, at host, in table) []string {
	var names, addresses []string
	f, _ := q.services.Footprint(r, at.View)
	if in.set.Overlay() && !slices.Contains(f.HTTP, at.Port) { // it differs from the base by that, or is asked for to be compared
		return nil
	}
	for _, ip := range f.VIPs {
		if q.owner(r, in, service.Domain{Name: ip, Port: at.Port}) == at.Host {
			addresses = append(addresses, envoy.Domain(ip))
		}
	}
	if _, err := netip.ParseAddr(at.Host); err != nil { // else it is one of the addresses
		names = append(names, at.Host)
		if !mesh.IsWildcard(at.Host) {
			names = append(names, at.Host+".")
		}
	}
	contested := q.contested(r, at.Host)
	for _, short := range mesh.ShortNames(at.Host, q.tables.Domain()) {
		if !contested || q.owner(r, in, service.Domain{Name: short, Port: at.Port}) == "" {
			names = append(names, short)
		}
	}
	if q.scope.Bare(scope.HostIn{Host: at.Host, Set: in.set}) {
		bare, _, _ := strings.Cut(at.Host, ".")
		if q.tables.ByHost.Group(r, bare).Len() == 0 || q.owner(r, in, service.Domain{Name: bare, Port: at.Port}) == "" {
			names = append(names, bare)
		}
	}
	return append(names, addresses...)
}

// contested reports whether anybody declares a short name of a cluster host as a host of its own.
func (q *Queries) contested(r *query.Reader, host string) bool {
	for c := range q.tables.ByHost.Group(r, host).All() {
		if c.Kind == state.ShortClaim {
			return true
		}
	}
	return false
}

// owner is the host of a table that goes first for an address or short name; empty if there is none.
func (q *Queries) owner(r *query.Reader, in table, at service.Domain) string {
	switch {
	case !in.set.Overlay() && in.proxied:
		return first(q.proxied.names.Group(r, in.proxyIn, at))
	case !in.set.Overlay():
		return first(q.scope.Taken.Names.Group(r, in.set, at))
	}
	base := first(q.services.Taken.Names.Group(r, service.All{}, at))
	if in.set == (scope.Set{}) || base != "" && q.scope.Layer(r, base, in.set.Namespace) == "" {
		return base
	}
	// The owner in the base looks different from there: the domain is free for those who do, too.
	return first(q.scope.Taken.Names.Group(r, in.set, at))
}

func first(claimants omap.Map[service.Claimant, omap.Unit]) string {
	for c := range claimants.All() {
		return c.Host
	}
	return ""
}
