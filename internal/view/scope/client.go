package scope

import (
	"cmp"
	"strings"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// ClientOf is what of a class's proxies themselves may matter.
func ClientOf(c proxy.Class) traffic.Client {
	k := traffic.Client{Site: c.Site}
	if c.Rules != "" {
		k.Rules = traffic.Rules{Namespace: c.Namespace, Names: c.Rules}
	}
	return k
}

// Personal names the hosts of a set that may look different to some client than to others of the set.
type Personal struct {
	Set    Set
	Client traffic.Client
}

// sites is by what of where clients run anything depends: the locality and some labels, or nothing.
type sites struct {
	any    bool
	labels string // keys in order, joined by commas
}

func (q *Queries) defineClients(g *query.Graph) {
	q.sites = query.Define(g, "sites", func(a, b sites) bool { return a == b }, q.sitesOf)
	q.sited = query.Define(g, "sitedHosts", Hosts.Equal, func(r *query.Reader, _ service.All) (Hosts, bool) {
		return q.sitedHosts(r), true
	})
	q.personal = query.Define(g, "personalHosts", Hosts.Equal, func(r *query.Reader, k Personal) (Hosts, bool) {
		hosts := Hosts{}
		if k.Client.Site != (mesh.Site{}) {
			hosts = q.sitedOf(r, q.Hosts(r, k.Set))
		}
		return union(hosts, q.selectedOf(r, k)), true
	})
}

// Sited are the hosts whose endpoints may be preferred by where a client runs, of those that all see.
func (q *Queries) Sited(r *query.Reader) Hosts {
	m, _ := q.sited.Get(r, service.All{})
	return m
}

// Personal are the hosts of a set that may look different to a client than to others of the set.
func (q *Queries) Personal(r *query.Reader, k Personal) Hosts {
	k.Set = k.Set.Plain()
	m, _ := q.personal.Get(r, k)
	return m
}

func (q *Queries) sitesOf(r *query.Reader, _ service.All) (sites, bool) {
	labels, every := q.tables.EverySited(r)
	if !every && q.tables.Hosts.Group(r, state.HostGroup{By: state.Sited}).Len() == 0 {
		return sites{}, true
	}
	keys := q.tables.SiteLabels.Group(r, struct{}{})
	for _, near := range []mesh.Nearness{mesh.SameZone, mesh.SameNode} {
		if q.tables.Hosts.Group(r, state.HostGroup{By: state.Near, Of: near.String()}).Len() > 0 {
			labels = append(labels, mesh.NearLabels(near)...)
		}
	}
	for _, label := range labels {
		keys = keys.With(omap.Put(omap.Name(label), omap.Unit{}))
	}
	var list []string
	for key := range keys.All() {
		list = append(list, string(key))
	}
	return sites{true, strings.Join(list, ",")}, true
}

func (q *Queries) sitedHosts(r *query.Reader) Hosts {
	if _, every := q.tables.EverySited(r); every {
		return q.services.PublicHosts(r)
	}
	group := func(by state.Grouping, of string) Hosts {
		return q.tables.Hosts.Group(r, state.HostGroup{By: by, Of: of})
	}
	sets := []Hosts{group(state.Sited, "")}
	for pattern := range group(state.SitedUnder, "").All() {
		if len(sets) == MaxGroups {
			return q.services.PublicHosts(r)
		}
		sets = append(sets, group(state.ServiceUnder, string(pattern)))
	}
	return union(sets...)
}

// sitedOf are those of some hosts whose endpoints may be preferred by where a client runs.
func (q *Queries) sitedOf(r *query.Reader, hosts Hosts) Hosts {
	_, every := q.tables.EverySited(r)
	if every || q.tables.Hosts.Group(r, state.HostGroup{By: state.SitedUnder}).Len() > 0 {
		return hosts
	}
	few, many := q.tables.Hosts.Group(r, state.HostGroup{By: state.Sited}), hosts
	if few.Len() > many.Len() {
		few, many = many, few
	}
	var both []omap.Change[omap.Name, omap.Unit]
	for host := range few.All() {
		if many.Has(host) {
			both = append(both, omap.Put(host, omap.Unit{}))
		}
	}
	return Hosts{}.With(both...)
}

// selectedOf are the hosts of a set for which there are rules that select the client.
func (q *Queries) selectedOf(r *query.Reader, k Personal) Hosts {
	all := Hosts{}
	for _, host := range q.traffic.Hosts(r, k.Client.Rules) {
		switch {
		case !k.Set.Overlay():
			all = union(all, covered(q.Hosts(r, k.Set), host))
		case mesh.IsWildcard(host):
			all = union(all, covered(q.Hosts(r, k.Set), host), q.tables.Hosts.Group(r, state.HostGroup{By: state.ServiceUnder, Of: host}))
		default:
			all = all.With(omap.Put(omap.Name(host), omap.Unit{}))
		}
	}
	return all
}

// site is where a proxy runs, as far as anything depends on it: where the endpoint that its workload is says, if it does,
// else its labels, else the proxy itself.
func (q *Queries) site(r *query.Reader, p *proxy.Proxy, labels map[string]string, own mesh.Locality) mesh.Site {
	by, _ := q.sites.Get(r, service.All{})
	if !by.any {
		return mesh.Site{}
	}
	at := mesh.Site{Locality: own}
	if own == (mesh.Locality{}) {
		at.Locality = mesh.RunsAt(labels, p.Locality)
	}
	var pairs []string
	for key := range strings.SplitSeq(by.labels, ",") {
		if v := mesh.PlaceLabel(key, labels, at.Locality, p.Network, cmp.Or(p.ClusterID, q.tables.ClusterID())); v != "" {
			pairs = append(pairs, mesh.LabelPair(key, v))
		}
	}
	at.Labels = strings.Join(pairs, ",")
	return at
}

// MaxSelecting bounds how many DestinationRules with a selector one namespace can have.
const MaxSelecting = 40

// rulesFor are the names of the DestinationRules of a namespace that select a workload, oldest first.
func (q *Queries) rulesFor(r *query.Reader, namespace string, labels map[string]string) string {
	var names []string
	looked := 0
	for at := range q.tables.SelectingPolicies.Group(r, namespace).All() {
		if looked++; looked > MaxSelecting {
			break
		}
		if rule, ok := q.tables.DestinationRules.Get(r, at.Key); ok && mesh.Selects(rule.Selector, labels) {
			names = append(names, at.Key.Name)
		}
	}
	return strings.Join(names, ",")
}
