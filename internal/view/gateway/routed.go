package gateway

import (
	"net/url"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/gatewayrows"
	"github.com/pilotmesh/pilot/internal/state/provider"
	"github.com/pilotmesh/pilot/internal/view/scope"
)

// Routing names the routes of gateways: the routes of the VirtualServices that are bound to the Gateways with some selectors and that the
// namespace of the gateways sees, and the routes of Ingresses. Gateways that differ in their ports only have the same one.
type Routing struct {
	Selectors intern.List[proxy.GatewaySelector]
	Ingress   bool
	Namespace string
}

// RoutingOf returns the routing of the gateways of a class.
func RoutingOf(c proxy.Class) Routing { return Routing{c.Selectors, c.Ingress, c.Namespace} }

// routedObject names a VirtualService or an Ingress, as gateways of a namespace see it.
type routedObject struct {
	object    api.Key
	namespace string
}

// boundGateway names a Gateway, as gateways of a namespace see it.
type boundGateway struct {
	gateway   api.Key
	namespace string
}

// destinations are the hosts to which an object routes.
type destinations struct {
	object string
	hosts  []string
}

// OutputName implements query.Output.
func (d destinations) OutputName() string { return d.object }

// ContentHash implements omap.Value.
func (d destinations) ContentHash() omap.Hash {
	return omap.Sum([]byte(d.object), []byte{0}, []byte(strings.Join(d.hosts, "\x00")))
}

// Size implements omap.Value.
func (destinations) Size() int { return 0 }

func (d destinations) equal(o destinations) bool {
	return d.object == o.object && slices.Equal(d.hosts, o.hosts)
}

// defineRouted defines the hosts to which gateways route. There is one cell per Gateway and one per object with routes. Nothing reads them unless
// gateways have the clusters of these hosts only.
func (q *Queries) defineRouted(g *query.Graph) {
	bound := query.Define(g, "routedGateway", func(a, b []candidates) bool {
		return slices.EqualFunc(a, b, func(a, b candidates) bool { return a.objects.Equal(b.objects) })
	}, func(r *query.Reader, k boundGateway) ([]candidates, bool) {
		c := candidates{k.gateway, q.boundTo(r, k.gateway, k.namespace)}
		return []candidates{c}, c.objects.Len() > 0
	})
	gateways := query.Each(g, "routedGateways", func(r *query.Reader, k Routing) omap.Map[gatewayrows.Selected, omap.Unit] {
		return q.selected(r, k.Selectors)
	}, bound, func(k Routing, gw gatewayrows.Selected) boundGateway { return boundGateway{gw.Gateway, k.Namespace} })
	objects := query.GroupSets(g, "routedObjects", gateways, candidates.set, candidates.of)
	one := query.Define(g, "routedDestinations", func(a, b []destinations) bool { return slices.EqualFunc(a, b, destinations.equal) }, q.destinationsOf)
	all := query.Each(g, "allRoutedDestinations", func(r *query.Reader, k Routing) omap.Map[api.Key, omap.Unit] {
		list := objects.Keys(r, k)
		if k.Ingress {
			list = union(list, q.tables.Gateways.Routed.Group(r, struct{}{}))
		}
		return list
	}, one, func(k Routing, object api.Key) routedObject { return routedObject{object, k.Namespace} })
	hosts := query.GroupBy(g, "routedHosts", all, func(d destinations, add func(omap.Name, omap.Name)) {
		for _, host := range d.hosts {
			add(omap.Name(host), omap.Name(d.object))
		}
	})
	q.routed = query.Define(g, "routed", scope.Hosts.Equal, func(r *query.Reader, k Routing) (scope.Hosts, bool) {
		return union(hosts.Keys(r, k), q.calledHosts(r, k.Namespace)), true
	})
}

// RoutedHosts returns the hosts of the services that gateways call: the hosts to which they route, the services of extension providers, and the
// servers from which they fetch the keys of tokens.
func (q *Queries) RoutedHosts(r *query.Reader, k Routing) scope.Hosts {
	hosts, _ := q.routed.Get(r, k)
	return hosts
}

// destinationsOf returns the hosts to which an object routes, and the hosts for which these are other names.
func (q *Queries) destinationsOf(r *query.Reader, k routedObject) ([]destinations, bool) {
	d := destinations{object: k.object.String()}
	add := func(host string) {
		d.hosts = append(d.hosts, host)
		if target, _, ok := q.services.AliasOf(r, host, k.namespace); ok {
			d.hosts = append(d.hosts, target)
		}
	}
	if k.object.Kind == ingress.Kind {
		row, ok := q.tables.Gateways.Routes.Get(r, k.object)
		if !ok || q.Standing(r, row.Admission) != Counts {
			return nil, false
		}
		for _, route := range row.Routes {
			if route.Backend.Host != "" {
				add(q.target(r, route.Backend.Host))
			}
		}
	} else if vs, ok := q.Rules(r, k.object); ok {
		for to := range vs.Destinations() {
			add(to.Host)
		}
	}
	slices.Sort(d.hosts)
	d.hosts = slices.Compact(d.hosts)
	return []destinations{d}, len(d.hosts) > 0
}

// calledHosts returns the hosts of the services that gateways of a namespace may call for policies and telemetry, whatever their routes are.
func (q *Queries) calledHosts(r *query.Reader, namespace string) (hosts scope.Hosts) {
	hosts = union(q.tables.Telemetry.Backends.Group(r, struct{}{}), q.tables.Security.Authorizers.Group(r, struct{}{}))
	var list []omap.Change[omap.Name, omap.Unit]
	for _, p := range q.tables.SecretServices(r) {
		if _, host, _ := provider.SplitService(p.GetService()); host != "" {
			list = append(list, omap.Put(omap.Name(host), omap.Unit{}))
		}
	}
	of := &q.tables.Security
	for _, ns := range []string{q.tables.RootNamespace(r), namespace} {
		for k := range union(of.FetchingForAll.Group(r, ns), of.FetchingSelecting.Group(r, ns)).All() {
			row, _ := of.Authentications.Get(r, k)
			for _, rule := range row.Spec.GetJwtRules() {
				address, _, fetched := q.tables.Security.FetchedByProxy(rule)
				if u, err := url.Parse(address); fetched && err == nil {
					list = append(list, omap.Put(omap.Name(strings.ToLower(u.Hostname())), omap.Unit{}))
				}
			}
		}
	}
	return omap.With(hosts, list...)
}
