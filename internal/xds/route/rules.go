package route

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// builder makes the routes of one virtual host.
type builder struct {
	q        *Queries
	r        *query.Reader
	at       host
	settings state.RouteSettings // read by rules
	targets  map[string]target   // by host, those looked at so far
	routes   []*routev3.Route
}

// byDefault sends everything to the host itself.
func (b *builder) byDefault() {
	cluster := envoy.OutboundCluster(b.at.Port, "", b.at.Host)
	a := envoy.Forward(nil)
	a.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: cluster}
	a.RetryPolicy = retries(b.settings.Retries, false)
	policy := b.q.traffic.PolicyFor(b.r, b.at.View, b.at.Rules)
	a.HashPolicy = hashPolicy(policy, "", b.at.Port)
	b.routes = append(b.routes, envoy.Route("default", envoy.MatchAll(), a, envoy.VirtualHostName(b.at.Host, b.at.Port)+"/*"))
}

// rules adds the routes of the first object that has any for these callers and this port: an object all of whose rules
// are for others counts as absent.
func (b *builder) rules() {
	b.settings = b.q.tables.RouteSettings(b.r)
	objects, _ := b.q.traffic.Routes.Get(b.r, b.at.View)
	for _, vs := range objects {
		for _, rule := range vs.Spec.Http {
			if b.rule(vs, rule) {
				break
			}
		}
		if len(b.routes) > 0 {
			return
		}
	}
}

// rule adds the routes of one rule. It reports whether nothing can get past it.
func (b *builder) rule(vs *state.VirtualService, rule *networking.HTTPRoute) (last bool) {
	if len(rule.Match) == 0 {
		b.route(vs, rule, nil)
		return true
	}
	for _, m := range rule.Match {
		if b.applies(m) && b.route(vs, rule, m) {
			return true
		}
	}
	return false
}

// applies reports whether a match can be met by these callers on this port. Where it names gateways, those alone say who
// the callers are.
func (b *builder) applies(m *networking.HTTPMatchRequest) bool {
	if m.Port != 0 && m.Port != b.at.Port {
		return false
	}
	if len(m.Gateways) > 0 {
		return slices.Contains(m.Gateways, mesh.Gateway)
	}
	return mesh.HasAll(b.at.Labels, m.SourceLabels) && (m.SourceNamespace == "" || m.SourceNamespace == b.at.Layer)
}

// route adds the route of a rule under one of its matches; nil is every request. It reports whether it takes everything.
func (b *builder) route(vs *state.VirtualService, rule *networking.HTTPRoute, m *networking.HTTPMatchRequest) (all bool) {
	out := &routev3.Route{
		Name: rule.Name, Match: requestMatch(m), StatPrefix: m.GetStatPrefix(), TypedPerFilterConfig: filters(rule),
	}
	if m.GetName() != "" {
		out.Name += "." + m.Name
	}
	changes := headerOperations(rule.Headers)
	if len(rule.Route) == 1 {
		changes = changes.and(headerOperations(rule.Route[0].Headers))
	}
	out.RequestHeadersToAdd, out.RequestHeadersToRemove = changes.requestAdd, changes.requestRemove
	out.ResponseHeadersToAdd, out.ResponseHeadersToRemove = changes.responseAdd, changes.responseRemove
	switch {
	case rule.Redirect != nil:
		out.Action = redirect(rule.Redirect, b.at.Port)
	case rule.DirectResponse != nil:
		out.Action = directResponse(rule.DirectResponse)
	case len(rule.Route) > 0:
		out.Action = b.forward(rule, changes.authority)
	default:
		return false // validation lets no rule pass that does nothing
	}
	out.Decorator = &routev3.Decorator{Operation: b.operation(vs, rule) + pathOf(out.Match)}
	b.routes = append(b.routes, out)
	return matchesAll(out.Match)
}

// operation names in traces where requests of a rule go: a destination, or the rule's object where there is not the one.
func (b *builder) operation(vs *state.VirtualService, rule *networking.HTTPRoute) string {
	if len(rule.Route) != 1 {
		return envoy.VirtualHostName(vs.Object.Name, b.at.Port)
	}
	d := rule.Route[0].Destination
	return envoy.VirtualHostName(d.GetHost(), b.port(d, b.target(d.GetHost())))
}

// pathOf is the path of a match as operations show it.
func pathOf(m *routev3.RouteMatch) string {
	switch p := m.PathSpecifier.(type) {
	case *routev3.RouteMatch_Path:
		return p.Path
	case *routev3.RouteMatch_Prefix:
		return p.Prefix + "*"
	case *routev3.RouteMatch_SafeRegex:
		return p.SafeRegex.GetRegex()
	}
	return "/*"
}
