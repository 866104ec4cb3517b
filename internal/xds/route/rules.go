package route

import (
	"cmp"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/settings"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// builder makes the routes of one virtual host.
type builder struct {
	q   *Queries
	r   *query.Reader
	key virtualHostKey
	// gateway is the Gateway whose requests are routed, as NAMESPACE/NAME; empty for requests of sidecars.
	gateway string
	// secure is true for requests that a gateway takes in TLS.
	secure bool
	// settings are set by addRules.
	settings settings.RouteSettings
	// targets are the destination hosts that were looked up, by host.
	targets map[string]target
	routes  []*routev3.Route
}

// addDefault adds the route that sends every request to the host itself.
func (b *builder) addDefault() {
	cluster := envoy.OutboundCluster(b.key.Port, "", b.key.Host)
	a := envoy.Forward(nil)
	a.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: cluster}
	a.RetryPolicy = retries(b.settings.Retries, false)
	policy := b.q.traffic.PolicyFor(b.r, b.key.HostView, b.key.Rules)
	a.HashPolicy = hashPolicy(policy, "", b.key.Port)
	out := envoy.Route("default", envoy.MatchAll(), a, envoy.VirtualHostName(b.key.Host, b.key.Port)+"/*")
	if b.q.tables.Sessions() {
		out.TypedPerFilterConfig = b.session(b.key.Host, nil)
	}
	b.routes = append(b.routes, out)
}

// addRules adds the routes of the first VirtualService that has a rule for these clients and this port. A VirtualService
// all of whose rules are for others counts as absent.
func (b *builder) addRules() {
	b.settings = b.q.tables.RouteSettings(b.r)
	objects, _ := b.q.traffic.Routes.Get(b.r, b.key.HostView)
	for _, vs := range objects {
		b.addObject(vs)
		if len(b.routes) > 0 {
			return
		}
	}
}

// addObject adds the routes of a VirtualService, up to one that matches every request.
func (b *builder) addObject(vs *state.VirtualService) {
	for _, rule := range vs.Spec.Http {
		if b.addRule(vs, rule) {
			return
		}
	}
}

// addRule adds the routes of one rule. It reports whether they match every request, so that later rules cannot apply.
func (b *builder) addRule(vs *state.VirtualService, rule *networking.HTTPRoute) (last bool) {
	if len(rule.Match) == 0 {
		b.addRoute(vs, rule, nil)
		return true
	}
	for _, m := range rule.Match {
		if b.applies(m) && b.addRoute(vs, rule, m) {
			return true
		}
	}
	return false
}

// applies reports whether requests of these clients on this port can meet a match. A match that names gateways does not
// look at the source.
func (b *builder) applies(m *networking.HTTPMatchRequest) bool {
	if m.Port != 0 && m.Port != b.key.Port {
		return false
	}
	if len(m.Gateways) > 0 {
		return slices.Contains(m.Gateways, cmp.Or(b.gateway, mesh.Gateway))
	}
	return mesh.HasAll(b.key.Labels, m.SourceLabels) && (m.SourceNamespace == "" || m.SourceNamespace == b.key.Viewer)
}

// addRoute adds the route of a rule under one of its matches; nil matches every request. It reports whether the route
// does.
func (b *builder) addRoute(vs *state.VirtualService, rule *networking.HTTPRoute, m *networking.HTTPMatchRequest) (all bool) {
	out := &routev3.Route{Name: rule.Name, Match: requestMatch(m), StatPrefix: m.GetStatPrefix()}
	if m.GetName() != "" {
		out.Name += "." + m.Name
	}
	return b.add(vs, rule, out)
}

// add completes the route of a rule and adds it. It reports whether the route matches every request.
func (b *builder) add(vs *state.VirtualService, rule *networking.HTTPRoute, out *routev3.Route) (all bool) {
	out.TypedPerFilterConfig = filterConfigs(rule)
	changes := headerOperations(rule.Headers)
	if len(rule.Route) == 1 {
		changes = changes.then(headerOperations(rule.Route[0].Headers))
		out.TypedPerFilterConfig = b.session(rule.Route[0].GetDestination().GetHost(), out.TypedPerFilterConfig)
	}
	out.RequestHeadersToAdd, out.RequestHeadersToRemove = changes.requestAdd, changes.requestRemove
	out.ResponseHeadersToAdd, out.ResponseHeadersToRemove = changes.responseAdd, changes.responseRemove
	switch {
	case rule.Redirect != nil:
		out.Action = redirect(rule.Redirect, b.key.Port, b.secure)
	case rule.DirectResponse != nil:
		out.Action = directResponse(rule.DirectResponse)
	case len(rule.Route) > 0:
		out.Action = b.forward(rule, changes.authority)
	default:
		return false // validation accepts no rule without an action
	}
	out.Decorator = &routev3.Decorator{Operation: b.operation(vs, rule) + pathOf(out.Match)}
	b.routes = append(b.routes, out)
	return matchesAll(out.Match)
}

// operation is the name in traces for requests of a rule: the destination, or the VirtualService if there is not exactly
// one.
func (b *builder) operation(vs *state.VirtualService, rule *networking.HTTPRoute) string {
	if len(rule.Route) != 1 {
		return envoy.VirtualHostName(vs.Object.Name, b.key.Port)
	}
	d := rule.Route[0].Destination
	return envoy.VirtualHostName(d.GetHost(), b.port(d, b.target(d.GetHost())))
}

// pathOf is the path of a match as it appears in operation names.
func pathOf(m *routev3.RouteMatch) string {
	switch p := m.PathSpecifier.(type) {
	case *routev3.RouteMatch_Path:
		return p.Path
	case *routev3.RouteMatch_Prefix:
		return p.Prefix + "*"
	case *routev3.RouteMatch_PathSeparatedPrefix:
		return p.PathSeparatedPrefix + "/*"
	case *routev3.RouteMatch_SafeRegex:
		return p.SafeRegex.GetRegex()
	}
	return "/*"
}
