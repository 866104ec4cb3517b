package scope

import (
	"cmp"

	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// ClientOf is what of a class's proxies themselves may matter.
func ClientOf(c proxy.Class) traffic.Client {
	k := traffic.Client{Site: c.Site}
	if !c.Rules.Empty() {
		k.Rules = traffic.Rules{Namespace: c.Namespace, Names: c.Rules}
	}
	return k
}

// Personal names the hosts of a set that may look different to some client than to others of the set.
type Personal struct {
	Set    Set
	Client traffic.Client
}

// siteAttributes are the attributes of a client's site that some rule depends on: the locality and some labels, or nothing.
type siteAttributes struct {
	any    bool
	labels intern.List[string] // the labels' names, in order
}

func (q *Queries) defineClients(g *query.Graph) {
	q.sites = query.Define(g, "sites", func(a, b siteAttributes) bool { return a == b }, q.sitesOf)
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

func (q *Queries) sitesOf(r *query.Reader, _ service.All) (siteAttributes, bool) {
	labels, every := q.tables.AllByLocality(r)
	if !every && q.tables.Hosts.ByLocality.Group(r, struct{}{}).Len() == 0 {
		return siteAttributes{}, true
	}
	keys := q.tables.SiteLabels.Group(r, struct{}{})
	for _, near := range []mesh.Nearness{mesh.SameZone, mesh.SameNode} {
		if q.tables.Hosts.PreferNear.Group(r, near).Len() > 0 {
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
	return siteAttributes{true, intern.Of(list...)}, true
}

func (q *Queries) sitedHosts(r *query.Reader) Hosts {
	if _, every := q.tables.AllByLocality(r); every {
		return q.services.PublicHosts(r)
	}
	sets := []Hosts{q.tables.Hosts.ByLocality.Group(r, struct{}{})}
	for pattern := range q.tables.Hosts.ByLocalityUnder.Group(r, struct{}{}).All() {
		if len(sets) == MaxGroups {
			return q.services.PublicHosts(r)
		}
		sets = append(sets, q.tables.Hosts.ServiceUnder.Group(r, string(pattern)))
	}
	return union(sets...)
}

// sitedOf are those of some hosts whose endpoints may be preferred by where a client runs.
func (q *Queries) sitedOf(r *query.Reader, hosts Hosts) Hosts {
	_, every := q.tables.AllByLocality(r)
	if every || q.tables.Hosts.ByLocalityUnder.Group(r, struct{}{}).Len() > 0 {
		return hosts
	}
	few, many := q.tables.Hosts.ByLocality.Group(r, struct{}{}), hosts
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
			all = union(all, covered(q.Hosts(r, k.Set), host), q.tables.Hosts.ServiceUnder.Group(r, host))
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
		at.Locality = mesh.WorkloadLocality(labels, p.Locality)
	}
	var list []mesh.Label
	for key := range by.labels.All() {
		if v := mesh.PlaceLabel(key, labels, at.Locality, p.Network, cmp.Or(p.ClusterID, q.tables.ClusterID())); v != "" {
			list = append(list, mesh.Label{Name: key, Value: v})
		}
	}
	at.Labels = intern.Of(list...)
	return at
}

// MaxSelecting bounds how many DestinationRules with a selector one namespace can have.
const MaxSelecting = 40

// rulesFor are the names of the DestinationRules of a namespace that select a workload, oldest first.
func (q *Queries) rulesFor(r *query.Reader, namespace string, labels map[string]string) intern.List[string] {
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
	return intern.Of(names...)
}
