package scope

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// MaxGroups bounds how many groups of hosts one set is made of: how many imports of a Sidecar that name a namespace or
// a pattern count.
const MaxGroups = 60

// maxLooked bounds how many Sidecars with one label pair are tried for a workload.
const maxLooked = 20

// class works out the facets of a proxy.
func (q *Queries) class(r *query.Reader, id string) (proxy.Class, bool) {
	p, ok := q.tables.Proxies.Get(r, id)
	if !ok {
		return proxy.Class{}, false
	}
	if p.Role == proxy.Router {
		return proxy.Class{
			Namespace: p.Namespace, Gateway: true, Site: q.site(r, p, p.Labels, mesh.Locality{}), Rules: q.rulesFor(r, p.Namespace, p.Labels),
		}, true
	}
	served, _ := q.services.Serves.Get(r, service.Workload{Namespace: p.Namespace, Addresses: intern.Of(p.Addresses...)})
	labels := p.Labels
	if served.Known {
		labels = served.Labels
	}
	c := proxy.Class{
		Labels:    q.mentioned(r, p.Namespace, labels),
		Namespace: p.Namespace, Mode: p.Mode, Inbound: served.Inbound,
		Site: q.site(r, p, labels, served.At), Rules: q.rulesFor(r, p.Namespace, labels),
		ShortNames: p.Domain == p.Namespace+".svc."+q.tables.Domain(), HTTP10: p.HTTP10, Idle: p.Idle,
		DefaultLog: p.Envoy > 0 && p.Envoy < q.tables.LogEnvoy(r),
	}
	if row, ok := q.sidecarOf(r, p.Namespace, labels); ok {
		if !row.All {
			c.Sidecar = row.Object
		}
		if len(row.Ingress) > 0 {
			c.Inbound = ingress(row, p.Namespace)
		}
		c.Inbound = limited(row, c.Inbound)
	}
	if p.Mode == proxy.None && !c.Inbound.Empty() {
		c.Bind = p.Addresses[0]
	}
	return c, true
}

// SidecarOf is the Sidecar that holds for a connected proxy; false if none does.
func (q *Queries) SidecarOf(r *query.Reader, id string) (api.Key, bool) {
	p, ok := q.tables.Proxies.Get(r, id)
	if !ok || p.Role == proxy.Router {
		return api.Key{}, false
	}
	labels := p.Labels
	if served, _ := q.services.Serves.Get(r, service.Workload{Namespace: p.Namespace, Addresses: intern.Of(p.Addresses...)}); served.Known {
		labels = served.Labels
	}
	row, ok := q.sidecarOf(r, p.Namespace, labels)
	if !ok {
		return api.Key{}, false
	}
	return row.Object, true
}

// sidecarOf finds the Sidecar for a workload: the oldest that selects it, else the namespace's default, else the
// mesh's.
func (q *Queries) sidecarOf(r *query.Reader, namespace string, labels map[string]string) (*state.Sidecar, bool) {
	row, ok := q.selecting(r, namespace, labels)
	for _, ns := range []string{namespace, q.tables.RootNamespace(r)} {
		if ok {
			break
		}
		row, ok = q.oldest(r, q.tables.SidecarsFor.Group(r, ns), func(*state.Sidecar) bool { return true })
	}
	return row, ok
}

// places says where the ports of a host can be reached from a set: wherever the host has them, unless a Sidecar has
// listeners for single ports.
func (q *Queries) places(r *query.Reader, h HostIn) func(namespace string, port uint32) []service.Place {
	if h.Set.Overlay() {
		return service.Everywhere
	}
	listeners, ok := q.listeners.Get(r, h.Set.Sidecar)
	if !ok {
		return service.Everywhere
	}
	return func(namespace string, port uint32) []service.Place {
		var out []service.Place
		var rest service.Place
		settled := false // the host's own addresses are for a listener with this port
		for _, e := range listeners {
			admits := e.Admits(namespace, h.Host, h.Set.Namespace)
			switch {
			case proxies(e): // what its requests are for has nothing to do with its port
			case e.Port == port:
				// Routes go by port: the listener's hosts alone are in them. Its address, too, is not for others.
				rest.NotHTTP = rest.NotHTTP || !e.Declared || e.Protocol.IsHTTP()
				rest.NotShared = rest.NotShared || e.IP == ""
				settled = settled || admits && e.IP == ""
				if admits {
					out = append(out, service.Place{IP: e.IP, Bound: e.Bound, Protocol: e.Protocol, Declared: e.Declared})
				}
			case e.Port == 0 && admits && !settled:
				out = append(out, rest)
			}
		}
		return out
	}
}

func (q *Queries) selecting(r *query.Reader, namespace string, labels map[string]string) (*state.Sidecar, bool) {
	var best *state.Sidecar
	for _, l := range mesh.SortedLabels(labels) {
		with := q.tables.SidecarsByLabel.Group(r, state.LabelIn{Namespace: namespace, Label: l})
		s, ok := q.oldest(r, with, func(s *state.Sidecar) bool {
			return mesh.Selects(s.Selector, labels)
		})
		if ok && (best == nil || older(s, best)) {
			best = s
		}
	}
	return best, best != nil
}

func older(a, b *state.Sidecar) bool {
	return state.AgeKey{Created: a.Created, Key: a.Object}.Compare(state.AgeKey{Created: b.Created, Key: b.Object}) < 0
}

// oldest is the first of some Sidecars that fits.
func (q *Queries) oldest(r *query.Reader, of omap.Map[state.AgeKey, omap.Unit], fits func(*state.Sidecar) bool) (*state.Sidecar, bool) {
	looked := 0
	for at := range of.All() {
		if looked++; looked > maxLooked {
			break
		}
		if s, ok := q.tables.Sidecars.Get(r, at.Key); ok && fits(s) {
			return s, true
		}
	}
	return nil, false
}

// imports are the hosts a Sidecar names, whether or not there is anything to them.
func (q *Queries) imports(r *query.Reader, s Set) (Hosts, bool) {
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
	hosts := q.without(r, union(append(sets, Hosts{}.With(exact...))...), row.Excludes, s.Namespace)
	if via := row.Outbound.Host; via != "" {
		hosts = hosts.With(omap.Put(omap.Name(via), omap.Unit{}))
	}
	return hosts, true
}

// without takes out the hosts that are excluded: all that are meant, or those that the namespace meant declares.
func (q *Queries) without(r *query.Reader, hosts Hosts, excludes []state.Import, client string) Hosts {
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
		var gone []omap.Change[omap.Name, omap.Unit]
		for host := range meant.All() {
			gone = append(gone, omap.Del[omap.Name, omap.Unit](host))
		}
		hosts = hosts.With(gone...)
	}
	return hosts
}

// undisputed are the hosts that no second namespace declares: of the others, that one's declaration may be let in.
func (q *Queries) undisputed(r *query.Reader, hosts Hosts) Hosts {
	var disputed []omap.Change[omap.Name, omap.Unit]
	for host := range q.services.Taken.Lost.Group(r, service.All{}, "").All() {
		disputed = append(disputed, omap.Del[omap.Name, omap.Unit](host))
	}
	return hosts.With(disputed...)
}

// homeOf is the namespace whose declaration of a host counts in a closed set if that is not the usual one: the proxies' own,
// else the oldest, of those that the Sidecar lets in. Where it lets none in, routes lead to the host, or it is excluded.
func (q *Queries) homeOf(r *query.Reader, h HostIn) (string, bool) {
	row, ok := q.tables.Sidecars.Get(r, h.Set.Sidecar)
	if !ok {
		return "", false
	}
	claims := q.tables.ByHost.Group(r, h.Host)
	usual, home := service.Home(claims, h.Set.Namespace), ""
	for c := range claims.All() {
		if c.Kind != state.ServiceClaim {
			break // listed by kind
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
		return service.Nobody, true
	case home == usual:
		return "", true
	}
	return home, true
}

// limited are ports of a workload, with its Sidecar where that limits connections to the application.
func limited(row *state.Sidecar, inbound intern.List[proxy.InboundPort]) intern.List[proxy.InboundPort] {
	ports := inbound.Items()
	for i := range ports {
		if row.Limits(ports[i].Number) != nil {
			ports[i].Limited = row.Object
		}
	}
	return intern.Of(ports...)
}

// ingress are the ports that a Sidecar says its workloads serve.
func ingress(row *state.Sidecar, namespace string) intern.List[proxy.InboundPort] {
	var list []proxy.InboundPort
	for _, in := range row.Ingress {
		list = append(list, proxy.InboundPort{
			Number: in.Number, Protocol: in.Protocol, Namespace: namespace, Port: in.Number, Bound: in.Bound, Bind: in.IP, To: in.To,
		})
	}
	return intern.Of(list...)
}

func (q *Queries) importAll(r *query.Reader, client string, i state.Import) []Hosts {
	hosts := &q.tables.Hosts
	if i.Namespace == "*" {
		own := covered(hosts.SeenBy.Group(r, client), i.Host)
		if i.Host == "*" {
			return []Hosts{hosts.SeenBy.Group(r, ""), own}
		}
		self := Hosts{}.With(omap.Put(omap.Name(i.Host), omap.Unit{}))
		return []Hosts{hosts.ServiceUnder.Group(r, i.Host), hosts.RoutesUnder.Group(r, i.Host), own, self}
	}
	return []Hosts{covered(q.declared(r, i.Namespace, ""), i.Host), covered(q.declared(r, i.Namespace, client), i.Host)}
}

// declared are the hosts with a service or routes that are declared in a namespace for the callers of a layer.
func (q *Queries) declared(r *query.Reader, namespace, layer string) Hosts {
	return q.tables.Hosts.DeclaredIn.Group(r, state.NamespaceLayer{Namespace: namespace, Layer: layer})
}

// covered are the hosts that a pattern covers.
func covered(hosts Hosts, pattern string) Hosts {
	if pattern == "*" {
		return hosts
	}
	if !mesh.IsWildcard(pattern) {
		if hosts.Has(omap.Name(pattern)) {
			return Hosts{}.With(omap.Put(omap.Name(pattern), omap.Unit{}))
		}
		return Hosts{}
	}
	var keep []omap.Change[omap.Name, omap.Unit]
	for host := range hosts.All() {
		if mesh.Covers(pattern, string(host)) {
			keep = append(keep, omap.Put(host, omap.Unit{}))
		}
	}
	return Hosts{}.With(keep...)
}

// reach is where the routes of one host of a Sidecar's set lead.
type reach struct {
	host string
	to   []string
}

func (x reach) OutputName() string { return x.host }

func (x reach) ContentHash() omap.Hash {
	return omap.Sum([]byte(x.host), []byte{0}, []byte(strings.Join(x.to, "\x00")))
}

func (reach) Size() int { return 0 }

// ReachedFrom is a host whose routes bring another one into a Sidecar's set; empty if the Sidecar names that one itself,
// or if it is not in the set.
func (q *Queries) ReachedFrom(r *query.Reader, h HostIn) string {
	s := h.Set.Plain()
	if named, _ := q.imported.Get(r, s); named.Has(omap.Name(h.Host)) {
		return ""
	}
	for from := range q.reached.Group(r, s, omap.Name(h.Host)).All() {
		return string(from)
	}
	return ""
}

// defineReached finds the destinations of the routes of imported hosts: a Sidecar lets them in as well.
func (q *Queries) defineReached(g *query.Graph) {
	same := func(a, b []reach) bool {
		return slices.EqualFunc(a, b, func(a, b reach) bool { return a.host == b.host && slices.Equal(a.to, b.to) })
	}
	elem := query.Define(g, "reach", same, func(r *query.Reader, h HostIn) ([]reach, bool) {
		routes, ok := q.traffic.Routes.Get(r, q.View(r, h))
		if !ok {
			return nil, false
		}
		x := reach{host: h.Host}
		for _, vs := range routes {
			for d := range vs.Destinations() {
				if !slices.Contains(x.to, d.Host) {
					x.to = append(x.to, d.Host)
				}
			}
		}
		return []reach{x}, true
	})
	in := func(r *query.Reader, s Set) Hosts {
		m, _ := q.imported.Get(r, s)
		return m
	}
	c := query.Each(g, "reaches", in, elem, func(s Set, host omap.Name) HostIn { return HostIn{string(host), s} })
	q.reached = query.GroupBy(g, "reached", c, func(x reach, add func(omap.Name, omap.Name)) {
		for _, to := range x.to {
			add(omap.Name(to), omap.Name(x.host))
		}
	})
}
