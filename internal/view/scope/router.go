package scope

import (
	"maps"
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/extension"
	"github.com/pilotmesh/pilot/internal/view/filter"
	"github.com/pilotmesh/pilot/internal/view/policy"
	"github.com/pilotmesh/pilot/internal/view/telemetry"
)

// routerClass returns the facets of a proxy that is a gateway.
func (q *Queries) routerClass(r *query.Reader, p *proxy.Proxy) proxy.Class {
	served, _ := q.services.Workload.Get(r, q.Workload(p))
	labels := p.Labels
	if served.HasEndpoint {
		labels = served.Labels
	}
	c := proxy.Class{
		Namespace: p.Namespace, Gateway: true, Names: p.DNS, Families: q.tables.FamiliesOf(p.Addresses), HTTP10: p.HTTP10 || q.tables.HTTP10(), Idle: p.Idle, Balance: proxy.Balance{Outbound: p.Balance.Outbound}, Networks: p.Networks, Topology: p.Topology, Connections: p.Connections,
		Site: q.localityOf(r, p, labels, served.Place), Rules: q.selectingRules(r, p.Namespace, labels), Labels: q.gatewayLabels(r, labels),
		Selectors: q.selectorsFor(r, p.Namespace, labels), Ingress: q.servesIngresses(r, p.Namespace, labels), DefaultLog: p.Envoy > 0 && p.Envoy < q.tables.LogEnvoy(r),
		Policies: policy.Selecting(q.tables, r, p.Namespace, labels), Telemetry: telemetry.Selecting(q.tables, r, p.Namespace, labels), OldStats: q.oldStats(r, p.Envoy), OtherAuthority: p.OtherAuthority && q.Measured(r),
	}
	c.Filters = filter.Selecting(q.tables, r, p.Namespace, labels)
	c.Conditions = filter.Conditions(q.tables, r, p, c.Filters)
	c.Extensions = extension.Selecting(q.tables, r, p.Namespace, labels)
	if !c.Selectors.Empty() || c.Ingress {
		c.Unprivileged, c.OnDemand = p.Unprivileged, q.onDemand(r, p, c)
		c.Targets, c.Datagrams = served.Targets, served.Datagrams
	}
	c.Cluster, c.Network = q.clusterOf(r, p, SetOf(c)), q.networkOf(r, p, labels, served.Place)
	return c
}

// onDemand reports whether a gateway gets the certificates of its hosts when clients ask for them.
func (q *Queries) onDemand(r *query.Reader, p *proxy.Proxy, c proxy.Class) bool {
	if p.OnDemand != proxy.OnDemandByCount {
		return p.OnDemand == proxy.OnDemandOn
	}
	on, _ := q.crowded.Get(r, crowd{c.Selectors, c.Ingress})
	return on
}

// crowd names what gateways serve. firstLabel is the first label of selectors, and the namespace of their Gateways if that matters.
type crowd struct {
	selectors intern.List[proxy.GatewaySelector]
	ingress   bool
}

type firstLabel struct {
	label     mesh.Label
	namespace string
}

func (q *Queries) defineRouters(g *query.Graph) {
	same := func(a, b intern.List[proxy.GatewaySelector]) bool { return a == b }
	q.selectors = query.Define(g, "gatewaySelectors", same, q.selectorsWith)
	q.crowded = query.Define(g, "crowdedGateways", func(a, b bool) bool { return a == b }, q.hasManyHosts)
}

// hasManyHosts reports whether gateways have so many hosts that they get certificates on demand.
func (q *Queries) hasManyHosts(r *query.Reader, k crowd) (bool, bool) {
	n := 0
	for s := range k.selectors.All() {
		for c := range q.tables.Gateways.Selected.Group(r, s).All() {
			n += c.Hosts
		}
	}
	if k.ingress {
		for a := range q.tables.Gateways.Admissions.Group(r, struct{}{}).All() {
			n += q.tables.Gateways.Secured.Group(r, a).Len() // each has a host, or more
		}
	}
	return n > proxy.OnDemandHosts, true
}

// selectorsFor returns the selectors of Gateways that select a workload, sorted. The Gateways are of all namespaces, or of its own if Gateways are
// limited to their namespace.
func (q *Queries) selectorsFor(r *query.Reader, namespace string, labels mesh.Labels) intern.List[proxy.GatewaySelector] {
	if !q.tables.ScopesGateways() {
		namespace = ""
	}
	var found []proxy.GatewaySelector
	add := func(first mesh.Label) {
		list, _ := q.selectors.Get(r, firstLabel{first, namespace})
		for s := range list.All() {
			if !slices.ContainsFunc(s.Labels.Items(), func(l mesh.Label) bool { return !labels.Has(l) }) {
				found = append(found, s)
			}
		}
	}
	add(mesh.Label{})
	for l := range labels.All() {
		add(l)
	}
	slices.SortFunc(found, proxy.GatewaySelector.Compare)
	return intern.Of(found...)
}

// selectorsWith returns the selectors of Gateways with a first label, each once.
func (q *Queries) selectorsWith(r *query.Reader, k firstLabel) (intern.List[proxy.GatewaySelector], bool) {
	seen := map[proxy.GatewaySelector]bool{}
	for g := range q.tables.Gateways.Selecting.Group(r, k.label).All() {
		if k.namespace == "" || g.Key.Namespace == k.namespace {
			seen[proxy.GatewaySelector{Labels: g.Labels, Namespace: k.namespace}] = true
		}
	}
	return intern.Of(slices.SortedFunc(maps.Keys(seen), proxy.GatewaySelector.Compare)...), true
}

// SelectorOf names the Gateways of a namespace with a selector.
func (q *Queries) SelectorOf(namespace string, selector mesh.Labels) proxy.GatewaySelector {
	if !q.tables.ScopesGateways() {
		namespace = ""
	}
	return proxy.GatewaySelector{Labels: selector, Namespace: namespace}
}

// servesIngresses reports whether a gateway serves Ingresses. If Gateways are limited to their namespace, it is in the root namespace.
func (q *Queries) servesIngresses(r *query.Reader, namespace string, labels mesh.Labels) bool {
	if q.tables.ScopesGateways() && namespace != q.tables.RootNamespace(r) {
		return false
	}
	return !slices.ContainsFunc(q.tables.Ingress(r).Selector().Items(), func(l mesh.Label) bool { return !labels.Has(l) })
}

// gatewayLabels are the labels of a gateway that occur in matches of rules for gateways.
func (q *Queries) gatewayLabels(r *query.Reader, labels mesh.Labels) mesh.Labels {
	list := labels.Items()
	if len(list) > maxLabels {
		list = list[:maxLabels]
	}
	return intern.Of(slices.DeleteFunc(list, func(l mesh.Label) bool {
		return q.tables.Gateways.BoundFor.Group(r, l).Len() == 0 && q.tables.Hosts.DelegatesForLabel.Group(r, l).Len() == 0
	})...)
}
