package scope

import (
	"cmp"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// ClientOf returns the attributes of a class's proxies, besides their set, that may matter to a host.
func (q *Queries) ClientOf(c proxy.Class) traffic.Client {
	return traffic.Client{
		Site: c.Site, Gateway: c.Gateway, Versions: traffic.VersionsOf(c.Families, q.tables.DualStack()), Cluster: c.Cluster, Network: c.Network, Networks: c.Networks,
		OtherAuthority: c.OtherAuthority, Rules: RulesOf(c),
	}
}

// RulesOf returns the DestinationRules that select a class's proxies.
func RulesOf(c proxy.Class) traffic.SelectingRules {
	if c.Rules.Empty() {
		return traffic.SelectingRules{}
	}
	return traffic.SelectingRules{Namespace: c.Namespace, Names: c.Rules}
}

// BaseClientOf returns the client attributes that may matter to a host of the base view. DestinationRules that select
// clients are of their namespace, so they do not matter there.
func (q *Queries) BaseClientOf(c proxy.Class) traffic.Client {
	k := q.ClientOf(c)
	k.Rules = traffic.SelectingRules{}
	return k
}

// ClientInSet names the hosts of a set that may look different to this client than to others of the set.
type ClientInSet struct {
	Set    Set
	Client traffic.Client
}

// localityAttributes are the attributes of a client's locality that some rule depends on. If used is false there is no
// such rule, and clients are not distinguished by locality.
type localityAttributes struct {
	used bool
	// labels are the names of the labels that count, sorted.
	labels intern.List[string]
}

func (q *Queries) defineClients(g *query.Graph) {
	q.localityAttributes = query.Define(g, "sites", func(a, b localityAttributes) bool { return a == b }, q.localityAttributesOf)
	q.localityHosts = query.Define(g, "sitedHosts", Hosts.Equal, func(r *query.Reader, _ service.All) (Hosts, bool) {
		return q.findLocalityHosts(r), true
	})
	q.byCluster = query.Define(g, "byCluster", func(a, b bool) bool { return a == b }, q.differsByCluster)
	q.clientHosts = query.Define(g, "personalHosts", Hosts.Equal, func(r *query.Reader, k ClientInSet) (Hosts, bool) {
		hosts := Hosts{}
		if k.Client.Site != (mesh.Site{}) {
			hosts = q.localityHostsAmong(r, q.Hosts(r, k.Set))
		}
		if k.Client.Gateway {
			hosts = union(hosts, q.Index.ForGateways.Group(r, k.Set, ""), q.credentialHostsAmong(r, q.Hosts(r, k.Set)))
		}
		if k.Client.Versions.One() {
			hosts = union(hosts, q.Index.ForVersions.Group(r, k.Set, ""))
		}
		if k.Client.Cluster != "" {
			hosts = union(hosts, q.clusterLocalAmong(r, k.Set))
		}
		if q.anyHostDiffers(r, k.Client) {
			hosts = union(hosts, q.Hosts(r, k.Set))
		}
		return union(hosts, q.hostsOfSelectingRules(r, k)), true
	})
}

// LocalityHosts are the hosts of the base view whose endpoints may be preferred by the client's locality.
func (q *Queries) LocalityHosts(r *query.Reader) Hosts {
	m, _ := q.localityHosts.Get(r, service.All{})
	return m
}

// BaseClientHosts are the hosts of the base view that may look different to a client than to others.
func (q *Queries) BaseClientHosts(r *query.Reader, c traffic.Client) Hosts {
	sets := []Hosts{{}}
	if c.Site != (mesh.Site{}) {
		sets = append(sets, q.LocalityHosts(r))
	}
	if c.Gateway {
		sets = append(sets, q.services.Index.ForGateways.Group(r, service.All{}, ""), q.credentialHosts(r))
	}
	if c.Versions.One() {
		sets = append(sets, q.services.Index.ForVersions.Group(r, service.All{}, ""))
	}
	if c.Cluster != "" {
		sets = append(sets, q.tables.Hosts.ClusterLocal.Group(r, ""))
	}
	if q.anyHostDiffers(r, c) {
		sets = append(sets, q.services.PublicHosts(r))
	}
	return union(sets...)
}

// anyHostDiffers reports whether every host may look different to a client: any endpoint may be in its network or elsewhere, behind a gateway of
// another version of IP, or at addresses that the client cannot use.
func (q *Queries) anyHostDiffers(r *query.Reader, c traffic.Client) bool {
	return c.OtherAuthority || c.Network != "" || !c.Networks.Empty() || c.Versions.One() && q.tables.DualStack() ||
		c.Versions != traffic.UsualVersions && q.services.MixedGateways(r)
}

// ClientHosts are the hosts of a set that may look different to a client than to others of the set.
func (q *Queries) ClientHosts(r *query.Reader, k ClientInSet) Hosts {
	k.Set = k.Set.WithoutNames()
	m, _ := q.clientHosts.Get(r, k)
	return m
}

func (q *Queries) localityAttributesOf(r *query.Reader, _ service.All) (localityAttributes, bool) {
	labels, every := q.tables.AllByLocality(r)
	if !every && q.tables.Hosts.ByLocality.Group(r, struct{}{}).Len() == 0 {
		return localityAttributes{}, true
	}
	keys := q.tables.SiteLabels.Group(r, struct{}{})
	for _, near := range []mesh.Nearness{mesh.SameZone, mesh.SameNode, mesh.OnlyNode} {
		if q.tables.Hosts.PreferNear.Group(r, near).Len() > 0 {
			labels = append(labels, mesh.NearLabels(near)...)
		}
	}
	for _, label := range labels {
		keys = omap.With(keys, omap.Put(omap.Name(label), omap.Unit{}))
	}
	var list []string
	for key := range keys.All() {
		list = append(list, string(key))
	}
	return localityAttributes{true, intern.Of(list...)}, true
}

func (q *Queries) findLocalityHosts(r *query.Reader) Hosts {
	if _, every := q.tables.AllByLocality(r); every {
		return q.services.PublicHosts(r)
	}
	return q.withPatterns(r, q.tables.Hosts.ByLocality.Group(r, struct{}{}), q.tables.Hosts.ByLocalityUnder.Group(r, struct{}{}))
}

// credentialHosts are the hosts of the base view for which a rule names a Secret that gateways use.
func (q *Queries) credentialHosts(r *query.Reader) Hosts {
	return q.withPatterns(r, q.tables.Hosts.ByCredential.Group(r, struct{}{}), q.tables.Hosts.ByCredentialUnder.Group(r, struct{}{}))
}

// withPatterns returns some hosts, and the hosts of the base view under some patterns.
func (q *Queries) withPatterns(r *query.Reader, hosts, patterns Hosts) Hosts {
	sets := []Hosts{hosts}
	for pattern := range patterns.All() {
		if len(sets) == MaxGroups {
			return q.services.PublicHosts(r)
		}
		sets = append(sets, q.tables.Hosts.ServiceUnder.Group(r, string(pattern)))
	}
	return union(sets...)
}

// credentialHostsAmong returns the given hosts for which a rule may name a Secret that gateways use. If a pattern has such a rule, it returns
// all hosts.
func (q *Queries) credentialHostsAmong(r *query.Reader, hosts Hosts) Hosts {
	if q.tables.Hosts.ByCredentialUnder.Group(r, struct{}{}).Len() > 0 {
		return hosts
	}
	return intersection(q.tables.Hosts.ByCredential.Group(r, struct{}{}), hosts)
}

// localityHostsAmong returns the given hosts whose endpoints may be preferred by the client's locality. If a pattern
// has such a rule, it returns all hosts.
func (q *Queries) localityHostsAmong(r *query.Reader, hosts Hosts) Hosts {
	_, every := q.tables.AllByLocality(r)
	if every || q.tables.Hosts.ByLocalityUnder.Group(r, struct{}{}).Len() > 0 {
		return hosts
	}
	return intersection(q.tables.Hosts.ByLocality.Group(r, struct{}{}), hosts)
}

// intersection returns the hosts that are in both sets.
func intersection(few, many Hosts) Hosts {
	if few.Len() > many.Len() {
		few, many = many, few
	}
	var both []omap.Change[omap.Name, omap.Unit]
	for host := range few.All() {
		if many.Has(host) {
			both = append(both, omap.Put(host, omap.Unit{}))
		}
	}
	return omap.With(Hosts{}, both...)
}

// hostsOfSelectingRules are the hosts of a set for which some DestinationRule selects the client.
func (q *Queries) hostsOfSelectingRules(r *query.Reader, k ClientInSet) Hosts {
	all := Hosts{}
	for _, host := range q.traffic.RuleHosts(r, k.Client.Rules) {
		switch {
		case !k.Set.Overlay():
			all = union(all, covered(q.Hosts(r, k.Set), host))
		case mesh.IsWildcard(host):
			all = union(all, covered(q.Hosts(r, k.Set), host), q.tables.Hosts.ServiceUnder.Group(r, host))
		default:
			all = omap.With(all, omap.Put(omap.Name(host), omap.Unit{}))
		}
	}
	return all
}

// clusterOf is the cluster of a proxy, if a host of its set has other addresses in another cluster.
func (q *Queries) clusterOf(r *query.Reader, p *proxy.Proxy, s Set) string {
	if differs, _ := q.byCluster.Get(r, s.WithoutNames()); !differs {
		return ""
	}
	return cmp.Or(p.ClusterID, q.tables.ClusterID())
}

func (q *Queries) differsByCluster(r *query.Reader, s Set) (bool, bool) {
	for _, layer := range []string{"", s.Namespace} {
		hosts := q.tables.Hosts.ByCluster.Group(r, layer)
		if hosts.Len() > 0 && (s.Overlay() || intersects(hosts, q.Hosts(r, s))) {
			return true, true
		}
	}
	return false, true
}

// clusterLocalAmong returns the hosts of a set that are local to each cluster.
func (q *Queries) clusterLocalAmong(r *query.Reader, s Set) Hosts {
	all := q.Hosts(r, s)
	var both []omap.Change[omap.Name, omap.Unit]
	for _, layer := range []string{"", s.Namespace} {
		for host := range q.tables.Hosts.ClusterLocal.Group(r, layer).All() {
			if all.Has(host) {
				both = append(both, omap.Put(host, omap.Unit{}))
			}
		}
	}
	return omap.With(Hosts{}, both...)
}

// intersects reports whether some host is in both sets.
func intersects(few, many Hosts) bool {
	if few.Len() > many.Len() {
		few, many = many, few
	}
	for host := range few.All() {
		if many.Has(host) {
			return true
		}
	}
	return false
}

// networkOf is the network of a proxy, if gateways lead into it: the one that the proxy reports, or else the network in
// its labels, of its pod or of its endpoint.
func (q *Queries) networkOf(r *query.Reader, p *proxy.Proxy, labels mesh.Labels, own mesh.Place) string {
	named, _ := mesh.LabelValue(labels, mesh.NetworkLabel)
	network := cmp.Or(p.Network, named, own.Network)
	if network == "" || !q.services.HasGateways(r, network) {
		return ""
	}
	return network
}

// localityOf is where a proxy runs, limited to the attributes that some rule depends on. The place of the workload's pod or
// endpoint comes first, then the locality in the workload's labels, then the place that the proxy reports.
func (q *Queries) localityOf(r *query.Reader, p *proxy.Proxy, labels mesh.Labels, own mesh.Place) mesh.Site {
	by, _ := q.localityAttributes.Get(r, service.All{})
	if !by.used {
		return mesh.Site{}
	}
	place := mesh.Place{
		Locality: own.Locality, Network: cmp.Or(p.Network, own.Network), Node: cmp.Or(own.Node, p.Node),
		Cluster: cmp.Or(p.ClusterID, q.tables.ClusterID()),
	}
	if own.Locality == (mesh.Locality{}) {
		place.Locality = mesh.WorkloadLocality(labels, p.Locality)
	}
	var list []mesh.Label
	for key := range by.labels.All() {
		if v := mesh.PlaceLabel(key, labels, place); v != "" {
			list = append(list, mesh.Label{Name: key, Value: v})
		}
	}
	return mesh.Site{Locality: place.Locality, Labels: intern.Of(list...)}
}

// MaxSelectingRules bounds how many DestinationRules with a workload selector count in one namespace.
const MaxSelectingRules = 40

// selectingRules are the names of the DestinationRules of a namespace that select a workload, oldest first.
func (q *Queries) selectingRules(r *query.Reader, namespace string, labels mesh.Labels) intern.List[string] {
	var names []string
	read := 0
	for at := range q.tables.SelectingPolicies.Group(r, namespace).All() {
		if read++; read > MaxSelectingRules {
			break
		}
		if rule, ok := q.tables.DestinationRules.Get(r, at.Key); ok && mesh.HasAll(labels, rule.Selector) {
			names = append(names, at.Key.Name)
		}
	}
	return intern.Of(names...)
}
