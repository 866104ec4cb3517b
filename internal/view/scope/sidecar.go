package scope

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/state/selected"
	"github.com/pilotmesh/pilot/internal/view/extension"
	"github.com/pilotmesh/pilot/internal/view/filter"
	"github.com/pilotmesh/pilot/internal/view/policy"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/view/telemetry"
)

// MaxGroups bounds how many groups of hosts are added up for one set: how many egress hosts of a Sidecar that name a
// namespace or a pattern count.
const MaxGroups = 60

// maxSidecarsTried bounds how many Sidecars with one label are compared with a workload.
const maxSidecarsTried = 20

// class computes the facets of a proxy.
func (q *Queries) class(r *query.Reader, id string) (proxy.Class, bool) {
	p, ok := q.tables.Proxies.Get(r, id)
	if !ok {
		return proxy.Class{}, false
	}
	return q.ClassOf(r, p), true
}

// ClassOf returns the facets of a proxy, whether or not it is connected.
func (q *Queries) ClassOf(r *query.Reader, p *proxy.Proxy) proxy.Class {
	if p.Role == proxy.Router || p.BootstrapOf == proxy.Router {
		return q.routerClass(r, p)
	}
	served, _ := q.services.Workload.Get(r, q.Workload(p))
	labels := p.Labels
	if served.HasEndpoint {
		labels = served.Labels
	}
	c := proxy.Class{
		Labels:    q.relevantLabels(r, p.Namespace, labels),
		Namespace: p.Namespace, Mode: p.Mode, Inbound: applicationPorts(served.Ports, p.OwnPorts), Own: served.Own, Families: q.tables.FamiliesOf(p.Addresses),
		Site: q.localityOf(r, p, labels, served.Place), Rules: q.selectingRules(r, p.Namespace, labels),
		ShortNames: p.Domain == p.Namespace+".svc."+q.tables.Domain(), HTTP10: p.HTTP10 || q.tables.HTTP10(), Idle: p.Idle, Balance: p.Balance, Names: p.DNS, Networks: p.Networks, HostsOnDemand: p.HostsOnDemand,
		DefaultLog: p.Envoy > 0 && p.Envoy < q.tables.LogEnvoy(r),
		MTLS:       q.services.Peers.Selected(r, p.Namespace, labels), NoCertificate: p.NoCertificate, Policies: policy.Selecting(q.tables, r, p.Namespace, labels),
		Telemetry: telemetry.Selecting(q.tables, r, p.Namespace, labels), OldStats: q.oldStats(r, p.Envoy), OtherAuthority: p.OtherAuthority && q.Measured(r),
	}
	c.Filters = filter.Selecting(q.tables, r, p.Namespace, labels)
	c.Conditions = filter.Conditions(q.tables, r, p, c.Filters)
	c.Extensions = extension.Selecting(q.tables, r, p.Namespace, labels)
	if row, ok := q.sidecarOf(r, p.Namespace, labels); ok {
		if !row.All {
			c.Sidecar = row.Object
		}
		if len(row.Ingress) > 0 {
			services := c.Inbound
			if c.Inbound = ingressPorts(row, p.Namespace); q.tables.ServicesBesideIngress() {
				c.Inbound = withOthers(c.Inbound, services)
			}
		}
		c.Inbound = withPoolLimits(row, c.Inbound)
	}
	c.Cluster, c.Network = q.clusterOf(r, p, SetOf(c)), q.networkOf(r, p, labels, served.Place)
	if p.Mode == proxy.None && !c.Inbound.Empty() {
		c.Bind = p.Addresses[0]
	}
	return c
}

// Workload names the workload of a proxy.
func (q *Queries) Workload(p *proxy.Proxy) service.Workload {
	return service.Workload{
		Cluster: cmp.Or(p.ClusterID, q.tables.ClusterID()), Namespace: p.Namespace, Name: p.Name, Addresses: intern.Of(p.Addresses...),
		Labels: p.Labels,
	}
}

// SidecarOf is the Sidecar that applies to a connected proxy. ok is false if none does.
func (q *Queries) SidecarOf(r *query.Reader, id string) (api.Key, bool) {
	p, ok := q.tables.Proxies.Get(r, id)
	if !ok || p.Role == proxy.Router {
		return api.Key{}, false
	}
	labels := p.Labels
	if served, _ := q.services.Workload.Get(r, q.Workload(p)); served.HasEndpoint {
		labels = served.Labels
	}
	row, ok := q.sidecarOf(r, p.Namespace, labels)
	if !ok {
		return api.Key{}, false
	}
	return row.Object, true
}

// sidecarOf is the Sidecar for a workload: the oldest that selects it, else the default of its namespace, else the
// default of the root namespace.
func (q *Queries) sidecarOf(r *query.Reader, namespace string, labels mesh.Labels) (*state.Sidecar, bool) {
	row, ok := q.selecting(r, namespace, labels)
	for _, ns := range []string{namespace, q.tables.RootNamespace(r)} {
		if ok {
			break
		}
		row, ok = q.oldest(r, q.tables.SidecarsFor.Group(r, ns), func(*state.Sidecar) bool { return true })
	}
	return row, ok
}

// exposures returns where the ports of a host can be reached from a set: at the addresses of the host, unless the
// Sidecar has egress listeners for single ports.
func (q *Queries) exposures(r *query.Reader, h HostInSet) func(namespace string, port uint32) []exposure.Place {
	if h.Set.Overlay() {
		return exposure.DefaultPlace
	}
	listeners, ok := q.listeners.Get(r, h.Set.Sidecar)
	if !ok {
		return exposure.DefaultPlace
	}
	return func(namespace string, port uint32) []exposure.Place {
		var out []exposure.Place
		var rest exposure.Place
		settled := false // a listener with this port has the host's own addresses
		for _, e := range listeners {
			admits := e.Admits(namespace, h.Host, h.Set.Namespace)
			switch {
			case isHTTPProxy(e): // requests to an HTTP proxy name the port themselves
			case e.IsUnix():
				if admits {
					out = append(out, exposure.Place{IP: e.IP, Bound: true, Protocol: e.Protocol, HasProtocol: true})
				}
			case e.Port == port:
				// The route configuration of a port belongs to the listener with that port: only the listener's hosts are
				// in it. Nor can other listeners use its address.
				rest.NoRoutes = rest.NoRoutes || !e.Declared || e.Protocol.IsHTTP()
				rest.NoWildcard = rest.NoWildcard || e.IP == ""
				settled = settled || admits && e.IP == ""
				if admits {
					out = append(out, exposure.Place{IP: e.IP, Bound: e.Bound, Protocol: e.Protocol, HasProtocol: e.Declared})
				}
			case e.Port == 0 && admits && !settled:
				out = append(out, rest)
			}
		}
		return out
	}
}

// SelectingSidecar is the oldest Sidecar of a namespace with a selector that selects a workload with these labels. ok is false if there is none.
func (q *Queries) SelectingSidecar(r *query.Reader, namespace string, labels mesh.Labels) (k api.Key, ok bool) {
	row, ok := q.selecting(r, namespace, labels)
	if !ok {
		return api.Key{}, false
	}
	return row.Object, true
}

func (q *Queries) selecting(r *query.Reader, namespace string, labels mesh.Labels) (*state.Sidecar, bool) {
	var best *state.Sidecar
	for l := range labels.All() {
		with := q.tables.SidecarsByLabel.Group(r, selected.LabelIn{Namespace: namespace, Label: l})
		s, ok := q.oldest(r, with, func(s *state.Sidecar) bool {
			return mesh.HasAll(labels, s.Selector)
		})
		if ok && (best == nil || older(s, best)) {
			best = s
		}
	}
	return best, best != nil
}

func older(a, b *state.Sidecar) bool {
	return selected.AgeKey{Created: a.Created, Key: a.Object}.Compare(selected.AgeKey{Created: b.Created, Key: b.Object}) < 0
}

// oldest is the first of some Sidecars that fits.
func (q *Queries) oldest(r *query.Reader, of omap.Map[selected.AgeKey, omap.Unit], fits func(*state.Sidecar) bool) (*state.Sidecar, bool) {
	read := 0
	for at := range of.All() {
		if read++; read > maxSidecarsTried {
			break
		}
		if s, ok := q.tables.Sidecars.Get(r, at.Key); ok && fits(s) {
			return s, true
		}
	}
	return nil, false
}

// importsOf are the hosts that a Sidecar names, whether or not they have a service or routes.
func (q *Queries) importsOf(r *query.Reader, s Set) (Hosts, bool) {
	row, ok := q.tables.Sidecars.Get(r, s.Sidecar)
	if !ok {
		return Hosts{}, false
	}
	sets := []Hosts{{}}
	var exact []omap.Change[omap.Name, omap.Unit]
	for _, i := range row.Imports {
		if i.Namespace == "." {
			i.Namespace = s.Namespace
		}
		if i.Namespace == "*" && !mesh.IsWildcard(i.Host) {
			exact = append(exact, omap.Put(omap.Name(i.Host), omap.Unit{}))
			continue
		}
		if len(sets) < MaxGroups {
			sets = append(sets, q.importAll(r, s.Namespace, i)...)
		}
	}
	hosts := q.removeExcluded(r, union(append(sets, omap.With(Hosts{}, exact...))...), row.Excludes, s.Namespace)
	if via := row.Outbound.Host; via != "" {
		hosts = omap.With(hosts, omap.Put(omap.Name(via), omap.Unit{}))
	}
	return hosts, true
}

// removeExcluded removes hosts that a Sidecar excludes: from any namespace, or declared by the namespace it names.
func (q *Queries) removeExcluded(r *query.Reader, hosts Hosts, excludes []state.Import, client string) Hosts {
	for n, e := range excludes {
		if n == MaxGroups {
			break
		}
		in := e.Namespace
		if in == "." {
			in = client
		}
		meant := covered(hosts, e.Host)
		if in != "*" {
			meant = covered(q.declared(r, in, ""), e.Host)
			own := covered(q.declared(r, in, client), e.Host)
			meant = q.undisputed(r, union(meant, own))
		}
		var excluded []omap.Change[omap.Name, omap.Unit]
		for host := range meant.All() {
			excluded = append(excluded, omap.Del[omap.Name, omap.Unit](host))
		}
		hosts = omap.With(hosts, excluded...)
	}
	return hosts
}

// undisputed are the hosts that only one namespace declares. The declaration of the other namespace may be imported.
func (q *Queries) undisputed(r *query.Reader, hosts Hosts) Hosts {
	var disputed []omap.Change[omap.Name, omap.Unit]
	for host := range q.services.Index.Overruled.Group(r, service.All{}, "").All() {
		disputed = append(disputed, omap.Del[omap.Name, omap.Unit](host))
	}
	return omap.With(hosts, disputed...)
}

// declarerIn is the namespace whose declaration of a host counts in the set of a Sidecar, if that is not the usual one:
// the namespace of the proxies, else the oldest declaration, among the declarations that the Sidecar imports. If it
// imports none, the host is excluded, or is imported only because routes lead to it.
func (q *Queries) declarerIn(r *query.Reader, h HostInSet) (string, bool) {
	row, ok := q.tables.Sidecars.Get(r, h.Set.Sidecar)
	if !ok {
		return "", false
	}
	claims := q.tables.ByHost.Group(r, h.Host)
	usual, home := service.DeclaringNamespace(claims, h.Set.Namespace), ""
	for c := range claims.All() {
		if c.Kind != claim.Service {
			break // claims are sorted by kind
		}
		if !c.VisibleTo(h.Set.Namespace) || !row.Admits(c.Namespace, h.Host, h.Set.Namespace) {
			continue
		}
		if home == "" || c.Namespace == h.Set.Namespace {
			home = c.Namespace
		}
	}
	switch {
	case home == "" && slices.ContainsFunc(row.Excludes, func(i state.Import) bool { return i.Covers(usual, h.Host, h.Set.Namespace) }):
		return service.NoDeclarer, true
	case home == usual:
		return "", true
	}
	return home, true
}

// withPoolLimits sets the Sidecar of those ports for which it limits connections to the application.
func withPoolLimits(row *state.Sidecar, inbound intern.List[proxy.InboundPort]) intern.List[proxy.InboundPort] {
	ports := inbound.Items()
	for i := range ports {
		if row.Limits(ports[i].Number) != nil {
			ports[i].Limited = row.Object
		}
	}
	return intern.Of(ports...)
}

// ingressPorts are the ports that a Sidecar declares for its workloads.
func ingressPorts(row *state.Sidecar, namespace string) intern.List[proxy.InboundPort] {
	var list []proxy.InboundPort
	for _, in := range row.Ingress {
		p := proxy.InboundPort{
			Number: in.Number, Protocol: in.Protocol, Namespace: namespace, Port: in.Number, Bound: in.Bound, Bind: in.IP, To: in.To,
		}
		if in.TLS != nil {
			p.TLS = row.Object
		}
		list = append(list, p)
	}
	return intern.Of(list...)
}

// withOthers adds the ports of services to the ones of a Sidecar. Of two ports with a number the one of the Sidecar counts.
func withOthers(ingress, services intern.List[proxy.InboundPort]) intern.List[proxy.InboundPort] {
	ports := ingress.Items()
	for _, p := range services.Items() {
		if !slices.ContainsFunc(ports, func(other proxy.InboundPort) bool { return other.Number == p.Number }) {
			ports = append(ports, p)
		}
	}
	return intern.Of(ports...)
}

func (q *Queries) importAll(r *query.Reader, client string, i state.Import) []Hosts {
	hosts := &q.tables.Hosts
	if i.Namespace == "*" {
		own := covered(hosts.SeenBy.Group(r, client), i.Host)
		if i.Host == "*" {
			return []Hosts{hosts.SeenBy.Group(r, ""), own}
		}
		self := omap.With(Hosts{}, omap.Put(omap.Name(i.Host), omap.Unit{}))
		return []Hosts{hosts.ServiceUnder.Group(r, i.Host), hosts.RoutesUnder.Group(r, i.Host), own, self}
	}
	return []Hosts{covered(q.declared(r, i.Namespace, ""), i.Host), covered(q.declared(r, i.Namespace, client), i.Host)}
}

// declared are the hosts that objects of a namespace declare or have routes for, as a viewer sees them.
func (q *Queries) declared(r *query.Reader, namespace, layer string) Hosts {
	return q.tables.Hosts.DeclaredIn.Group(r, claim.NamespaceLayer{Namespace: namespace, Layer: layer})
}

// covered are the hosts that a pattern covers.
func covered(hosts Hosts, pattern string) Hosts {
	if pattern == "*" {
		return hosts
	}
	if !mesh.IsWildcard(pattern) {
		if hosts.Has(omap.Name(pattern)) {
			return omap.With(Hosts{}, omap.Put(omap.Name(pattern), omap.Unit{}))
		}
		return Hosts{}
	}
	var keep []omap.Change[omap.Name, omap.Unit]
	for host := range hosts.All() {
		if mesh.Covers(pattern, string(host)) {
			keep = append(keep, omap.Put(host, omap.Unit{}))
		}
	}
	return omap.With(Hosts{}, keep...)
}

// routeTargets are the hosts that the routes of one imported host lead to.
type routeTargets struct {
	host    string
	targets []string
}

func (x routeTargets) OutputName() string { return x.host }

func (x routeTargets) ContentHash() omap.Hash {
	return omap.Sum([]byte(x.host), []byte{0}, []byte(strings.Join(x.targets, "\x00")))
}

func (routeTargets) Size() int { return 0 }

// ImportedThrough is a host whose routes lead to this host and thereby import it. It is empty if the Sidecar names this
// host, or if the host is not in the set.
func (q *Queries) ImportedThrough(r *query.Reader, h HostInSet) string {
	s := h.Set.WithoutNames()
	if named, _ := q.imported.Get(r, s); named.Has(omap.Name(h.Host)) {
		return ""
	}
	for from := range q.reached.Group(r, s, omap.Name(h.Host)).All() {
		return string(from)
	}
	return ""
}

// defineRouteTargets defines the destinations of the routes of imported hosts, which a Sidecar imports as well.
func (q *Queries) defineRouteTargets(g *query.Graph) {
	same := func(a, b []routeTargets) bool {
		return slices.EqualFunc(a, b, func(a, b routeTargets) bool { return a.host == b.host && slices.Equal(a.targets, b.targets) })
	}
	elem := query.Define(g, "reach", same, func(r *query.Reader, h HostInSet) ([]routeTargets, bool) {
		routes, ok := q.traffic.Routes.Get(r, q.View(r, h))
		if !ok {
			return nil, false
		}
		x := routeTargets{host: h.Host}
		add := func(host string) {
			if !slices.Contains(x.targets, host) {
				x.targets = append(x.targets, host)
			}
		}
		for _, vs := range routes {
			for d := range vs.Destinations() {
				add(d.Host)
				if target, _, ok := q.services.AliasOf(r, d.Host, h.Set.Namespace); ok {
					add(target)
				}
			}
		}
		return []routeTargets{x}, true
	})
	in := func(r *query.Reader, s Set) Hosts {
		m, _ := q.imported.Get(r, s)
		return m
	}
	c := query.Each(g, "reaches", in, elem, func(s Set, host omap.Name) HostInSet { return HostInSet{string(host), s} })
	q.reached = query.GroupBy(g, "reached", c, func(x routeTargets, add func(omap.Name, omap.Name)) {
		for _, to := range x.targets {
			add(omap.Name(to), omap.Name(x.host))
		}
	})
}

// applicationPorts returns the ports of a workload at which its proxy does not listen itself.
func applicationPorts(all intern.List[proxy.InboundPort], own intern.List[uint32]) intern.List[proxy.InboundPort] {
	if own.Empty() {
		return all
	}
	return intern.Of(slices.DeleteFunc(all.Items(), func(p proxy.InboundPort) bool { return slices.Contains(own.Items(), p.Number) })...)
}
