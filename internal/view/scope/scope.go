// Package scope answers which hosts a proxy sees, and as what: the layers that translation is made of.
//
// What all see is one base. A Set is what some proxies see besides or instead: either the overlay of a namespace, which
// holds only the hosts that look different from there, or the closed set of hosts that a Sidecar lets in. Whether a
// host looks different to a namespace is told from the list of claims on the host alone.
//
// The package starts no goroutines and must not import xds or Envoy's protos.
package scope

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// Hosts is a set of hosts.
type Hosts = omap.Map[omap.Name, omap.Unit]

// Set names what some proxies see besides what all see, or instead of it.
type Set struct {
	// Namespace is the proxies'.
	Namespace string
	// Sidecar closes the set: only what it lets in is seen. Zero: an overlay over what all see.
	Sidecar api.Key
	// Short adds the hosts that can be called by their bare names.
	Short bool
}

// Overlay reports whether the set lies over what all see.
func (s Set) Overlay() bool { return s.Sidecar == api.Key{} }

// Plain is the set without regard to names.
func (s Set) Plain() Set {
	s.Short = false
	return s
}

// SetOf is the set of a class.
func SetOf(c proxy.Class) Set {
	return Set{Namespace: c.Namespace, Sidecar: c.Sidecar, Short: c.ShortNames}
}

// HostIn is a host as seen from a set.
type HostIn struct {
	Host string
	Set  Set
}

type hostFrom struct{ host, namespace string }

// Queries answer questions about scope.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	traffic  *traffic.Queries
	layer    *query.Query[hostFrom, look]
	home     *query.Query[HostIn, string]
	barred   *query.Query[HostIn, intern.List[api.Key]]
	imported *query.Query[Set, Hosts]
	reached  *query.Groups[Set, omap.Name, omap.Name]
	sites    *query.Query[service.All, siteAttributes]
	sited    *query.Query[service.All, Hosts]
	personal *query.Query[Personal, Hosts]
	// listeners are those of a Sidecar; absent if it has none for single ports.
	listeners *query.Query[api.Key, []state.Egress]
	// hosts are the hosts of a set.
	hosts *query.Query[Set, Hosts]
	// namedHosts are those with bare names, too; labelledHosts those that callers with labels may see differently.
	namedHosts    *query.Query[Set, Hosts]
	labelledHosts *query.Query[Labelled, Hosts]
	// Footprints are what the hosts of a set take up, grouped in Taken. In an overlay they are the hosts that differ
	// and, if Short, those that have a bare name.
	Footprints *query.Collection[Set, service.Footprint]
	Taken      *service.Taken[Set]
	// Labelled is what the hosts take up that callers with labels may see differently: the same as for others of the set,
	// for rules change only whose it is.
	Labelled *service.Taken[Labelled]
	// Class is the class of a connected proxy, by node id; absent if no such proxy is connected.
	Class *query.Query[string, proxy.Class]
}

// Define adds the queries.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, tr *traffic.Queries) *Queries {
	q := &Queries{tables: t, services: s, traffic: tr}
	q.layer = query.Define(g, "layer", func(a, b look) bool { return a == b }, q.lookOf)
	q.home = query.Define(g, "home", func(a, b string) bool { return a == b }, q.homeOf)
	q.barred = query.Define(g, "barred", func(a, b intern.List[api.Key]) bool { return a == b }, q.barredFrom)
	q.imported = query.Define(g, "imported", Hosts.Equal, q.imports)
	q.defineReached(g)
	q.hosts = query.Define(g, "scopeHosts", Hosts.Equal, q.hostsOf)
	q.defineClients(g)
	q.namedHosts = query.Define(g, "namedHosts", Hosts.Equal, q.named)
	q.listeners = query.Define(g, "sidecarListeners", func(a, b []state.Egress) bool { return slices.EqualFunc(a, b, state.Egress.Equal) },
		func(r *query.Reader, k api.Key) ([]state.Egress, bool) {
			row, ok := t.Sidecars.Get(r, k)
			if !ok || row.Plain {
				return nil, false
			}
			return row.Egress, true
		})
	elem := query.Define(g, "scopedFootprint", service.EqualFootprints, q.footprint)
	q.Footprints = query.Each(g, "scopedFootprints", q.Named, elem, func(s Set, host omap.Name) HostIn { return HostIn{string(host), s} })
	q.Taken = service.DefineTaken(g, "scoped.", t.Domain(), q.Footprints)
	q.defineLabelled(g)
	q.Class = query.Define(g, "class", func(a, b proxy.Class) bool { return a == b }, q.class)
	return q
}

// View is the view that a set has of a host, normalised so that whoever sees the same reads the same cells.
func (q *Queries) View(r *query.Reader, h HostIn) service.View {
	v := service.View{Host: h.Host}
	if h.Set.Namespace == "" {
		return v
	}
	look, _ := q.layer.Get(r, hostFrom{h.Host, h.Set.Namespace})
	v.Layer = look.layer
	if h.Set.Overlay() {
		return v
	}
	h.Set = h.Set.Plain()
	if look.contested {
		v.Home, _ = q.home.Get(r, h)
	}
	if look.ruled {
		v.Barred, _ = q.barred.Get(r, h)
	}
	return v
}

// Layer is the namespace if the host looks different from there, else "".
func (q *Queries) Layer(r *query.Reader, host, namespace string) string {
	if namespace == "" {
		return ""
	}
	look, _ := q.layer.Get(r, hostFrom{host, namespace})
	return look.layer
}

// Destination is the service that rules of a layer lead to: as those in the layer see it, else as whoever sees it, for the
// rules then lead to a cluster that only those have.
func (q *Queries) Destination(r *query.Reader, host, layer string) (*service.Service, bool) {
	if s, ok := q.services.Service.Get(r, service.View{Host: host, Layer: q.Layer(r, host, layer)}); ok {
		return s, true
	}
	for c := range q.tables.ByHost.Group(r, host).All() {
		if c.Kind == state.ServiceClaim {
			return q.services.Service.Get(r, service.View{Host: host, Layer: c.Layer})
		}
	}
	return nil, false
}

// look is how a host looks from a namespace: its layer, whether several namespaces declare it for that one, and whether
// there are VirtualServices for it.
type look struct {
	layer            string
	contested, ruled bool
}

func (q *Queries) lookOf(r *query.Reader, k hostFrom) (look, bool) {
	claims := q.tables.ByHost.Group(r, k.host)
	home, contested := service.Home(claims, k.namespace), false
	for c := range claims.All() {
		if c.Kind != state.ServiceClaim {
			break // listed by kind
		}
		contested = contested || c.Namespace != home && c.VisibleTo(k.namespace)
	}
	look := look{contested: contested}
	for range q.rules(r, k) {
		look.ruled = true
		break
	}
	if q.differs(r, k, claims) {
		look.layer = k.namespace
	}
	return look, true
}

// differs reports whether a host looks different from a namespace than to all.
func (q *Queries) differs(r *query.Reader, k hostFrom, claims omap.Map[state.Claim, omap.Unit]) bool {
	home := service.Home(claims, "")
	differs := func(c state.Claim, covers bool) bool {
		own := c.Layer == "" && c.Namespace == k.namespace
		switch c.Kind {
		case state.ShortClaim:
			return q.namesDiffer(r, k)
		case state.ServiceClaim:
			return !covers && (c.Layer == k.namespace || own && home != k.namespace)
		case state.PolicyClaim:
			return c.Layer == k.namespace || own && home != k.namespace && k.namespace != q.tables.RootNamespace(r)
		case state.DelegateClaim:
			return q.singledOut(r, c.Delegate, k.namespace)
		}
		return c.Layer == k.namespace
	}
	for c := range claims.All() {
		if differs(c, false) {
			return true
		}
	}
	for pattern := range mesh.Patterns(k.host) {
		for c := range q.tables.ByHost.Group(r, pattern).All() {
			if differs(c, true) {
				return true
			}
		}
	}
	return false
}

// namesDiffer reports whether a namespace sees other declarations of the host's short names than all do: a short name is the
// host's only where nobody declares it.
func (q *Queries) namesDiffer(r *query.Reader, k hostFrom) bool {
	for _, short := range mesh.ShortNames(k.host, q.tables.Domain()) {
		claims := q.tables.ByHost.Group(r, short)
		home := service.Home(claims, "")
		for c := range claims.All() {
			if c.Kind > state.RouteClaim {
				break // listed by kind
			}
			own := c.Kind == state.ServiceClaim && c.Layer == "" && c.Namespace == k.namespace
			if c.Layer == k.namespace || own && home != k.namespace {
				return true
			}
		}
	}
	return false
}

// singledOut reports whether a delegate treats callers of a namespace differently.
func (q *Queries) singledOut(r *query.Reader, delegate api.Key, namespace string) bool {
	c, ok := q.tables.Claims.Get(r, delegate)
	return ok && len(c.Hosts) == 0 && slices.Contains(c.Sources, namespace)
}

// Hosts are the hosts of a set, without regard to names.
func (q *Queries) Hosts(r *query.Reader, s Set) Hosts {
	m, _ := q.hosts.Get(r, s.Plain())
	return m
}

func (q *Queries) hostsOf(r *query.Reader, s Set) (Hosts, bool) {
	if !s.Overlay() {
		m, _ := q.imported.Get(r, s)
		return union(m, q.reached.Keys(r, s)), true
	}
	hosts := &q.tables.Hosts
	parts := []Hosts{
		hosts.DifferentFor.Group(r, s.Namespace),
		q.services.Taken.Lost.Group(r, service.All{}, omap.Name(s.Namespace)),
	}
	for pattern := range hosts.DifferentUnder.Group(r, s.Namespace).All() {
		if len(parts) >= 2*MaxGroups {
			break
		}
		parts = append(parts, hosts.ServiceUnder.Group(r, string(pattern)), hosts.RoutesUnder.Group(r, string(pattern)))
	}
	for delegate := range hosts.DelegatesFor.Group(r, s.Namespace).All() {
		parts = q.through(r, delegate, "", parts)
	}
	return union(parts...), true
}

// through adds the hosts to parts of which a layer sees rules that are in a delegate.
func (q *Queries) through(r *query.Reader, delegate api.Key, layer string, parts []Hosts) []Hosts {
	return q.below(r, q.tables.Hosts.ByDelegate.Group(r, state.DelegateLayer{Delegate: delegate, Layer: layer}), parts)
}

// below adds hosts to parts, with those that the patterns among them cover.
func (q *Queries) below(r *query.Reader, hosts Hosts, parts []Hosts) []Hosts {
	parts = append(parts, hosts)
	for host := range hosts.All() {
		if mesh.IsWildcard(string(host)) && len(parts) < 2*MaxGroups {
			parts = append(parts,
				q.tables.Hosts.ServiceUnder.Group(r, string(host)), q.tables.Hosts.RoutesUnder.Group(r, string(host)))
		}
	}
	return parts
}

func (q *Queries) named(r *query.Reader, s Set) (Hosts, bool) {
	hosts := q.Hosts(r, s)
	if s.Short && s.Overlay() {
		hosts = union(hosts, q.tables.Hosts.BareIn.Group(r, s.Namespace))
	}
	return hosts, true
}

// union adds sets up; its cost is that of all but the largest.
func union(sets ...Hosts) Hosts {
	slices.SortStableFunc(sets, func(a, b Hosts) int { return b.Len() - a.Len() })
	all := sets[0]
	for _, s := range sets[1:] {
		add := make([]omap.Change[omap.Name, omap.Unit], 0, s.Len())
		for host := range s.All() {
			add = append(add, omap.Put(host, omap.Unit{}))
		}
		all = all.With(add...)
	}
	return all
}

func (q *Queries) footprint(r *query.Reader, h HostIn) ([]service.Footprint, bool) {
	v := q.View(r, h)
	if v.Layer == "" && h.Set.Overlay() {
		if !q.Bare(h) {
			return nil, false
		}
		f, ok := q.services.Footprint(r, v)
		f.Shared, f.Own, f.Dynamic, f.Web, f.TCP, f.VIPs, f.Others = nil, nil, nil, nil, nil, nil, nil // the base has those
		return []service.Footprint{f}, ok
	}
	f, ok := q.services.FootprintAt(r, v, q.places(r, h))
	f.Host = h.Host
	if h.Set.Overlay() {
		if base, had := q.services.Footprint(r, service.View{Host: h.Host}); had {
			f.Gone, ok = &base, true
		}
	}
	return []service.Footprint{f}, ok
}

// Bare reports whether the set can call the host by its bare name.
func (q *Queries) Bare(h HostIn) bool {
	_, ns, ok := mesh.ClusterHost(h.Host, q.tables.Domain())
	return ok && h.Set.Short && ns == h.Set.Namespace
}

// Outbound is what happens to a set's traffic for destinations nobody declared.
func (q *Queries) Outbound(r *query.Reader, s Set) state.Outbound {
	if !s.Overlay() {
		if row, ok := q.tables.Sidecars.Get(r, s.Sidecar); ok && row.HasOutbound {
			if q.leads(r, s, row.Outbound) {
				return row.Outbound
			}
			return state.Outbound{Mode: state.RegistryOnly} // what was to go one way only must not go another
		}
	}
	return state.Outbound{Mode: q.tables.OutboundMode(r)}
}

// leads reports whether there is the service that traffic is to go by, if there is to be one.
func (q *Queries) leads(r *query.Reader, s Set, o state.Outbound) bool {
	if o.Host == "" {
		return true
	}
	v := q.View(r, HostIn{Host: o.Host, Set: s})
	via, ok := q.services.Service.Get(r, v)
	if !ok {
		return false
	}
	if _, ok := via.Port(o.Port); !ok || o.Subset == "" {
		return ok
	}
	policy, ok := q.traffic.Policy.Get(r, v)
	return ok && slices.ContainsFunc(policy.Subsets, func(s *networking.Subset) bool { return s.Name == o.Subset })
}
