// Package scope answers which hosts a proxy sees, and how they look to it.
//
// All proxies share the base view. A Set names the hosts that some proxies see besides it or instead of it: either the
// overlay of a namespace, which holds only the hosts that look different from there, or the hosts that a Sidecar imports.
// Whether a host looks different to a namespace follows from the claims on the host alone. The package also computes the
// class of a proxy.
//
// Everything here is a query or a pure function of rows. The package starts no goroutines.
package scope

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/state/settings"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/view/telemetry"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// Hosts is a set of hosts.
type Hosts = omap.Map[omap.Name, omap.Unit]

// Set names the hosts that some proxies see: the hosts in the overlay of a namespace, or the hosts that a Sidecar imports.
type Set struct {
	// Namespace is the namespace of the proxies. It is empty for the base view.
	Namespace string
	// Sidecar is the Sidecar whose imports are seen. If it is zero, the set is an overlay over the base view.
	Sidecar api.Key
	// ShortNames says that the proxies can also call cluster hosts of their own namespace by the first label of the name.
	ShortNames bool
	// Families are the IP versions of the proxies' addresses. The names of a host include its addresses of these versions.
	Families mesh.Families
	// Cluster is the cluster of the proxies; see proxy.Class. They use the addresses that a service has in this cluster.
	Cluster string
}

// Overlay reports whether the set is an overlay over the base view.
func (s Set) Overlay() bool { return s.Sidecar == api.Key{} }

// WithoutNames returns the set without ShortNames, Families and Cluster: results that do not depend on names and addresses are shared.
func (s Set) WithoutNames() Set {
	s.ShortNames, s.Families, s.Cluster = false, mesh.OnlyIPv4, ""
	return s
}

// SetOf is the set of a class.
func SetOf(c proxy.Class) Set {
	return Set{Namespace: c.Namespace, Sidecar: c.Sidecar, ShortNames: c.ShortNames, Families: c.Families, Cluster: c.Cluster}
}

// HostInSet names a host as the proxies of a set see it.
type HostInSet struct {
	Host string
	Set  Set
}

// hostFromNamespace names a host as the proxies of a namespace see it.
type hostFromNamespace struct{ host, namespace string }

// Queries answer questions about scope.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	traffic  *traffic.Queries
	// appearance is how a host looks from a namespace.
	appearance query.Query[hostFromNamespace, hostAppearance]
	// declarer and excludedRoutes are what a Sidecar changes about a host; see service.HostView.
	declarer       query.Query[HostInSet, string]
	excludedRoutes query.Query[HostInSet, intern.List[api.Key]]
	// imported are the hosts that a Sidecar names; reached maps a host to the imported hosts whose routes lead to it.
	imported query.Query[Set, Hosts]
	reached  query.Groups[Set, omap.Name, omap.Name]
	// localityAttributes are the attributes of a client's locality that some rule depends on.
	localityAttributes query.Query[service.All, localityAttributes]
	// localityHosts are the hosts of the base view whose endpoints may be preferred by locality.
	localityHosts query.Query[service.All, Hosts]
	// byCluster reports whether some host of a set has other addresses in another cluster.
	byCluster query.Query[Set, bool]
	// clientHosts are the hosts of a set that may look different to a client.
	clientHosts query.Query[ClientInSet, Hosts]
	// listeners are the egress listeners of a Sidecar. The result is absent if it has none for single ports.
	listeners query.Query[api.Key, []state.Egress]
	// hosts are the hosts of a set without regard to short names.
	hosts query.Query[Set, Hosts]
	// hostsWithShortNames adds the hosts that can be called by short names; labelledHosts are the hosts that clients
	// with labels may see differently.
	hostsWithShortNames query.Query[Set, Hosts]
	labelledHosts       query.Query[Audience, Hosts]
	// Footprints are the footprints of the hosts of a set, and Index groups them. In an overlay they are the hosts
	// that look different and, with ShortNames, the cluster hosts of the namespace.
	Footprints query.Collection[Set, exposure.Footprint]
	Index      *exposure.Index[Set]
	// ByAudience groups the footprints for every audience. Clients with labels see the same footprints as the other clients of their set, because rules
	// for labels change only where connections and requests go.
	ByAudience AudienceIndex
	// Class is the class of a connected proxy by node id. It is absent if no such proxy is connected.
	Class query.Query[string, proxy.Class]
	// selectors are the selectors of Gateways, each once. crowded reports whether gateways with some selectors have so many hosts that they get
	// certificates on demand.
	selectors query.Query[firstLabel, intern.List[proxy.GatewaySelector]]
	crowded   query.Query[crowd, bool]
	// measured reports whether any proxy reports metrics of the mesh.
	measured query.Query[service.All, bool]
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, tr *traffic.Queries) *Queries {
	q := &Queries{tables: t, services: s, traffic: tr}
	q.appearance = query.Define(g, "layer", func(a, b hostAppearance) bool { return a == b }, q.appearanceOf)
	q.declarer = query.Define(g, "home", func(a, b string) bool { return a == b }, q.declarerIn)
	q.excludedRoutes = query.Define(g, "barred", func(a, b intern.List[api.Key]) bool { return a == b }, q.routesExcludedBy)
	q.imported = query.Define(g, "imported", Hosts.Equal, q.importsOf)
	q.defineRouteTargets(g)
	q.hosts = query.Define(g, "scopeHosts", Hosts.Equal, q.hostsOf)
	q.hostsWithShortNames = query.Define(g, "namedHosts", Hosts.Equal, q.withShortNames)
	q.listeners = query.Define(g, "sidecarListeners", func(a, b []state.Egress) bool { return slices.EqualFunc(a, b, state.Egress.Equal) },
		func(r *query.Reader, k api.Key) ([]state.Egress, bool) {
			row, ok := t.Sidecars.Get(r, k)
			if !ok || row.Plain {
				return nil, false
			}
			return row.Egress, true
		})
	elem := query.Define(g, "scopedFootprint", exposure.Equal, q.footprint)
	q.Footprints = query.Each(g, "scopedFootprints", q.HostsWithShortNames, elem, func(s Set, host omap.Name) HostInSet { return HostInSet{string(host), s} })
	q.Index = exposure.DefineIndex(g, "scoped.", t.Domain(), q.Footprints)
	q.defineClients(g)
	q.defineLabelled(g)
	q.defineRouters(g)
	q.measured = query.Define(g, "measured", func(a, b bool) bool { return a == b }, func(r *query.Reader, _ service.All) (bool, bool) {
		return telemetry.Measured(t, r), true
	})
	q.Class = query.Define(g, "class", func(a, b proxy.Class) bool { return a == b }, q.class)
	return q
}

// Measured reports whether any proxy reports metrics of the mesh, so that clusters and endpoints need what the metrics say of them.
func (q *Queries) Measured(r *query.Reader) bool {
	on, _ := q.measured.Get(r, service.All{})
	return on
}

// oldStats returns the minor version of an Envoy that is too old for all features of the logger for metrics; 0 for others, and while metrics
// are off.
func (q *Queries) oldStats(r *query.Reader, minor uint32) uint32 {
	const complete = 39
	if minor == 0 || minor >= complete || !q.Measured(r) {
		return 0
	}
	return minor
}

// View is the key of a host as a set sees it, normalised so that all sets for which it looks the same share the cells.
func (q *Queries) View(r *query.Reader, h HostInSet) service.HostView {
	v := service.HostView{Host: h.Host}
	if h.Set.Namespace == "" {
		return v
	}
	appearance, _ := q.appearance.Get(r, hostFromNamespace{h.Host, h.Set.Namespace})
	v.Viewer = appearance.viewer
	if h.Set.Overlay() {
		return v
	}
	h.Set = h.Set.WithoutNames()
	if appearance.contested {
		v.Declarer, _ = q.declarer.Get(r, h)
	}
	if appearance.hasRoutes {
		v.ExcludedRoutes, _ = q.excludedRoutes.Get(r, h)
	}
	return v
}

// Viewer is the namespace if the host looks different from there, else "".
func (q *Queries) Viewer(r *query.Reader, host, namespace string) string {
	if namespace == "" {
		return ""
	}
	appearance, _ := q.appearance.Get(r, hostFromNamespace{host, namespace})
	return appearance.viewer
}

// DestinationService is the service that a rule leads to. It is the service as clients of the viewing namespace see it;
// if they see none, it is the service as any namespace sees it, because the rule then leads to a cluster that only those
// clients have.
func (q *Queries) DestinationService(r *query.Reader, host, layer string) (*service.Service, bool) {
	if s, ok := q.services.Service.Get(r, service.HostView{Host: host, Viewer: q.Viewer(r, host, layer)}); ok {
		return s, true
	}
	for c := range q.tables.ByHost.Group(r, host).All() {
		if c.Kind == claim.Service {
			return q.services.Service.Get(r, service.HostView{Host: host, Viewer: c.Layer})
		}
	}
	return nil, false
}

// hostAppearance is how a host looks from a namespace: its viewer, whether several namespaces declare it for that
// namespace, and whether VirtualServices for it are visible.
type hostAppearance struct {
	viewer               string
	contested, hasRoutes bool
}

func (q *Queries) appearanceOf(r *query.Reader, k hostFromNamespace) (hostAppearance, bool) {
	claims := q.tables.ByHost.Group(r, k.host)
	home, contested := service.DeclaringNamespace(claims, k.namespace), false
	for c := range claims.All() {
		if c.Kind != claim.Service {
			break // claims are sorted by kind
		}
		contested = contested || c.Namespace != home && c.VisibleTo(k.namespace) && !c.Registry
	}
	appearance := hostAppearance{contested: contested}
	for range q.visibleRoutes(r, k) {
		appearance.hasRoutes = true
		break
	}
	if q.differs(r, k, claims) {
		appearance.viewer = k.namespace
	}
	return appearance, true
}

// differs reports whether a host looks different from a namespace than in the base view.
func (q *Queries) differs(r *query.Reader, k hostFromNamespace, claims omap.Map[claim.Claim, omap.Unit]) bool {
	home := service.DeclaringNamespace(claims, "")
	differs := func(c claim.Claim, covers bool) bool {
		own := c.Layer == "" && c.Namespace == k.namespace
		switch c.Kind {
		case claim.Short:
			return q.shortNamesDiffer(r, k)
		case claim.Service:
			return !covers && (c.Layer == k.namespace || own && home != k.namespace)
		case claim.Policy:
			return c.Layer == k.namespace || own && home != k.namespace && k.namespace != q.tables.RootNamespace(r)
		case claim.Delegate:
			return q.delegateNames(r, c.Delegate, k.namespace)
		}
		return c.Layer == k.namespace
	}
	for c := range claims.All() {
		if differs(c, false) {
			return true
		}
	}
	if q.nameDiffers(r, k) {
		return true
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

// nameDiffers reports whether a host is a name of a Service of a Kubernetes cluster for clients of a namespace, and not for all.
func (q *Queries) nameDiffers(r *query.Reader, k hostFromNamespace) bool {
	if _, ok := q.services.NameOwner(r, k.host, k.namespace); !ok {
		return false
	}
	_, ok := q.services.NameOwner(r, k.host, "")
	return !ok
}

// shortNamesDiffer reports whether a namespace sees other declarations of the host's short names than the base view does.
// A short name belongs to the host only where no object declares it.
func (q *Queries) shortNamesDiffer(r *query.Reader, k hostFromNamespace) bool {
	for _, short := range mesh.ShortNames(k.host, q.tables.Domain()) {
		claims := q.tables.ByHost.Group(r, short)
		home := service.DeclaringNamespace(claims, "")
		for c := range claims.All() {
			if c.Kind > claim.Route {
				break // claims are sorted by kind
			}
			own := c.Kind == claim.Service && c.Layer == "" && c.Namespace == k.namespace
			if c.Layer == k.namespace || own && home != k.namespace {
				return true
			}
		}
	}
	return false
}

// delegateNames reports whether a delegate VirtualService has a rule that names the namespace as source.
func (q *Queries) delegateNames(r *query.Reader, delegate api.Key, namespace string) bool {
	c, ok := q.tables.Claims.Get(r, delegate)
	return ok && len(c.Hosts) == 0 && slices.Contains(c.Sources, namespace)
}

// Hosts are the hosts of a set, without regard to short names.
func (q *Queries) Hosts(r *query.Reader, s Set) Hosts {
	m, _ := q.hosts.Get(r, s.WithoutNames())
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
		q.services.Index.Overruled.Group(r, service.All{}, omap.Name(s.Namespace)),
	}
	for pattern := range hosts.DifferentUnder.Group(r, s.Namespace).All() {
		if len(parts) >= 2*MaxGroups {
			break
		}
		parts = append(parts, hosts.ServiceUnder.Group(r, string(pattern)), hosts.RoutesUnder.Group(r, string(pattern)))
	}
	for delegate := range hosts.DelegatesFor.Group(r, s.Namespace).All() {
		parts = q.addDelegating(r, delegate, "", parts)
	}
	return union(append(parts, q.bareHosts(r, s.Namespace))...), true
}

// bareHosts are the hosts that ServiceEntries declare and that are the first label of a name of a Service in a namespace. Clients there
// mean the Service.
func (q *Queries) bareHosts(r *query.Reader, namespace string) (hosts Hosts) {
	bare := q.tables.Hosts.Bare.Group(r, struct{}{})
	if bare.Len() == 0 {
		return hosts
	}
	few, many := bare, q.tables.Hosts.NamesIn.Group(r, namespace)
	if many.Len() < few.Len() {
		few, many = many, few
	}
	var list []omap.Change[omap.Name, omap.Unit]
	for host := range few.All() {
		if many.Has(host) {
			list = append(list, omap.Put(host, omap.Unit{}))
		}
	}
	return omap.With(hosts, list...)
}

// addDelegating appends to parts the hosts whose rules, as a viewer sees them, are in a delegate.
func (q *Queries) addDelegating(r *query.Reader, delegate api.Key, layer string, parts []Hosts) []Hosts {
	return q.addCovered(r, q.tables.Hosts.ByDelegate.Group(r, claim.DelegateLayer{Delegate: delegate, Layer: layer}), parts)
}

// addCovered appends hosts to parts, and the hosts that the patterns among them cover.
func (q *Queries) addCovered(r *query.Reader, hosts Hosts, parts []Hosts) []Hosts {
	parts = append(parts, hosts)
	for host := range hosts.All() {
		if mesh.IsWildcard(string(host)) && len(parts) < 2*MaxGroups {
			parts = append(parts,
				q.tables.Hosts.ServiceUnder.Group(r, string(host)), q.tables.Hosts.RoutesUnder.Group(r, string(host)))
		}
	}
	return parts
}

func (q *Queries) withShortNames(r *query.Reader, s Set) (Hosts, bool) {
	hosts := q.Hosts(r, s)
	if s.ShortNames && s.Overlay() {
		hosts = union(hosts, q.tables.Hosts.BareIn.Group(r, s.Namespace))
	}
	return hosts, true
}

// union returns the union of sets. Its cost is the size of all sets but the largest.
func union(sets ...Hosts) Hosts {
	slices.SortStableFunc(sets, func(a, b Hosts) int { return b.Len() - a.Len() })
	all := sets[0]
	for _, s := range sets[1:] {
		add := make([]omap.Change[omap.Name, omap.Unit], 0, s.Len())
		for host := range s.All() {
			add = append(add, omap.Put(host, omap.Unit{}))
		}
		all = omap.With(all, add...)
	}
	return all
}

func (q *Queries) footprint(r *query.Reader, h HostInSet) ([]exposure.Footprint, bool) {
	v := q.View(r, h)
	if v.Viewer == "" && h.Set.Overlay() {
		if !q.AllowsBareName(h) && !q.hasBareAlias(r, v, h.Set) {
			return nil, false
		}
		f, ok := q.services.Footprint(r, v)
		// The base view has the host with all of these.
		f.SharedPorts, f.DedicatedPorts, f.DynamicPorts, f.GRPCWebPorts = nil, nil, nil, nil
		f.Connections, f.VIPs, f.OverruledNamespaces = nil, nil, nil
		f.ForGateways, f.ForVersions = false, false
		return []exposure.Footprint{f}, ok
	}
	f, ok := q.services.FootprintAt(r, v, q.exposures(r, h))
	f.Host = h.Host
	if h.Set.Overlay() {
		if base, had := q.services.Footprint(r, service.HostView{Host: h.Host}); had {
			f.Base, ok = &base, true
		}
		f.HoldsVIPs = f.IsService() && (f.Base == nil || !f.Base.IsService())
	}
	return []exposure.Footprint{f}, ok
}

// AllowsBareName reports whether the proxies of the set can call the host by the first label of its name.
func (q *Queries) AllowsBareName(h HostInSet) bool {
	_, ns, ok := mesh.ClusterHost(h.Host, q.tables.Domain())
	return ok && h.Set.ShortNames && ns == h.Set.Namespace
}

// hasBareAlias reports whether the proxies of a set can call a host by the first label of an alias.
func (q *Queries) hasBareAlias(r *query.Reader, v service.HostView, s Set) bool {
	return s.ShortNames && slices.ContainsFunc(q.services.Aliases(r, v), func(a service.Alias) bool { return a.Namespace == s.Namespace })
}

// Outbound is the policy of the proxies of a set for traffic to undeclared destinations.
func (q *Queries) Outbound(r *query.Reader, s Set) settings.Outbound {
	if !s.Overlay() {
		if row, ok := q.tables.Sidecars.Get(r, s.Sidecar); ok && row.HasOutbound {
			if q.hasOutboundService(r, s, row.Outbound) {
				return row.Outbound
			}
			return settings.Outbound{Mode: settings.RegistryOnly} // traffic that must use one service must not bypass it
		}
	}
	return settings.Outbound{Mode: q.tables.OutboundMode(r)}
}

// hasOutboundService reports whether the service, port and subset exist that traffic to undeclared destinations is sent
// to. It is true if no service is named.
func (q *Queries) hasOutboundService(r *query.Reader, s Set, o settings.Outbound) bool {
	if o.Host == "" {
		return true
	}
	v := q.View(r, HostInSet{Host: o.Host, Set: s})
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
