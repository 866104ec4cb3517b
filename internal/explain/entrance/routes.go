package entrance

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	gateways "github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// Route is a rule that the request may meet.
type Route struct {
	Object reply.Ref `json:"object"`
	Field  string    `json:"field"`
	// Match describes the requests that match, and Conditional is true if that depends on more than the path.
	Match       string `json:"match"`
	Conditional bool   `json:"conditional,omitempty"`
	// Response is what the gateway answers itself; empty if the request goes to Destinations.
	Response     string        `json:"response,omitempty"`
	Destinations []Destination `json:"destinations,omitempty"`
	// Trouble says why the request fails; empty if nothing is wrong.
	Trouble string `json:"trouble,omitempty"`

	all bool
}

// Destination is where requests of a rule go.
type Destination struct {
	Host      string `json:"host"`
	Subset    string `json:"subset,omitempty"`
	Port      uint32 `json:"port"`
	Percent   int32  `json:"percent"`
	Endpoints int    `json:"endpoints"`
	Healthy   int    `json:"healthy"`
	Trouble   string `json:"trouble,omitempty"`
}

// routes returns the rules for the request at a server, in the order in which Envoy tries them: rules for every request come last.
// With a path, the list ends with the first rule that the request certainly meets.
func (i *inquiry) routes(f front, s *gateway.Placed) []Route {
	table := f.Table(s.Table)
	host, ok := "", false
	hosts := i.Queries.Gateways.VirtualHosts(i.r, table)
	for name := range mesh.NarrowestFirst(i.Host) {
		if host, ok = name, hosts.Has(omap.Name(name)); ok {
			break
		}
	}
	if !ok {
		return nil
	}
	var list, last []Route
	var done []string
	for u := range i.Queries.Gateways.Uses(i.r, table, host).All() {
		if u.Rules != "" && slices.Contains(done, u.Rules) {
			continue
		}
		done = append(done, u.Rules)
		for _, r := range i.rulesOf(f, u) {
			if r.all {
				last = append(last, r)
			} else {
				list = append(list, r)
			}
		}
	}
	list = append(list, last...)
	if i.Path != "" {
		if n := slices.IndexFunc(list, func(r Route) bool { return !r.Conditional }); n >= 0 {
			list = list[:n+1]
		}
	}
	return slices.Clip(list[:min(len(list), maxListed)])
}

// rulesOf returns the rules of a VirtualService, or of all Ingresses for a host, that the request may meet.
func (i *inquiry) rulesOf(f front, u gateway.Use) (list []Route) {
	if u.Object.Kind == ingress.Kind {
		h, ok := i.Queries.Gateways.Host(i.r, u.Rules)
		if !ok {
			return nil
		}
		for _, rule := range h.Rules {
			if rule.Winner == (api.Key{}) && !rule.LeftOut() && i.meets(rule) {
				list = append(list, i.ingressRoute(f, rule))
			}
		}
		return list
	}
	vs, ok := i.Queries.Gateways.Rules(i.r, u.Object)
	if !ok {
		return nil
	}
	for n, rule := range vs.Spec.Http {
		field := fmt.Sprintf("spec.http[%d]", n)
		if len(rule.Match) == 0 {
			return append(list, i.rule(f, u.Object, field, "any path", rule, false, true))
		}
		for m, match := range rule.Match {
			if !i.applies(f, u, match) {
				continue
			}
			conditional := hasConditions(match)
			all := !conditional && (match.Uri == nil || match.Uri.GetPrefix() == "/")
			list = append(list, i.rule(f, u.Object, fmt.Sprintf("%s.match[%d]", field, m), matchText(match), rule, conditional, all))
			if all {
				return list
			}
		}
	}
	return list
}

// applies reports whether the request may meet a match.
func (i *inquiry) applies(f front, u gateway.Use, m *networking.HTTPMatchRequest) bool {
	if m.Port != 0 && m.Port != u.Port {
		return false
	}
	if len(m.Gateways) > 0 {
		if !slices.Contains(m.Gateways, u.Gateway) {
			return false
		}
	} else if !mesh.HasAll(f.Labels, m.SourceLabels) || m.SourceNamespace != "" && m.SourceNamespace != f.Namespace {
		return false
	}
	if i.Path == "" || m.Uri == nil {
		return true
	}
	path := i.Path
	fold := func(s string) string { return s }
	if m.IgnoreUriCase {
		fold, path = strings.ToLower, strings.ToLower(path)
	}
	switch u := m.Uri.MatchType.(type) {
	case *networking.StringMatch_Exact:
		return path == fold(u.Exact)
	case *networking.StringMatch_Prefix:
		return strings.HasPrefix(path, fold(u.Prefix))
	case *networking.StringMatch_Regex:
		re, err := regexp.Compile("^(?:" + u.Regex + ")$")
		return err == nil && re.MatchString(i.Path)
	}
	return true
}

// meets reports whether the request meets a rule of an Ingress.
func (i *inquiry) meets(rule gateway.Rule) bool {
	switch {
	case i.Path == "" || rule.Match == gateways.AnyPath:
		return true
	case rule.Match == gateways.ExactPath:
		return i.Path == rule.Path
	}
	return i.Path == rule.Path || strings.HasPrefix(i.Path, rule.Path+"/")
}

// hasConditions reports whether a match depends on more than the path.
func hasConditions(m *networking.HTTPMatchRequest) bool {
	return m.Scheme != nil || m.Method != nil || m.Authority != nil || len(m.Headers) > 0 || len(m.WithoutHeaders) > 0 || len(m.QueryParams) > 0
}

func matchText(m *networking.HTTPMatchRequest) string {
	text := "any path"
	switch u := m.GetUri().GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		text = "exact " + u.Exact
	case *networking.StringMatch_Prefix:
		text = "prefix " + u.Prefix
	case *networking.StringMatch_Regex:
		text = "regex " + u.Regex
	}
	if hasConditions(m) {
		text += ", with conditions on the request"
	}
	return text
}

func (i *inquiry) rule(f front, object api.Key, field, match string, rule *networking.HTTPRoute, conditional, all bool) Route {
	out := Route{Object: i.ref(object), Field: field, Match: match, Conditional: conditional, all: all}
	switch {
	case rule.Redirect != nil:
		out.Response = fmt.Sprintf("a redirect, status %d", cmp.Or(rule.Redirect.RedirectCode, 301))
		return out
	case rule.DirectResponse != nil:
		out.Response = fmt.Sprintf("status %d", rule.DirectResponse.Status)
		return out
	}
	for _, d := range rule.Route {
		percent := d.Weight
		if len(rule.Route) == 1 {
			percent = 100
		}
		out.Destinations = append(out.Destinations, i.destination(f, d.Destination, percent))
	}
	out.judge()
	return out
}

func (i *inquiry) ingressRoute(f front, rule gateway.Rule) Route {
	match := "prefix " + rule.Path
	switch rule.Match {
	case gateways.ExactPath:
		match = "exact " + rule.Path
	case gateways.AnyPath:
		match = "any path"
	case gateways.PathSegments:
	}
	d := &networking.Destination{Host: rule.Target, Port: &networking.PortSelector{Number: rule.Port}}
	out := Route{
		Object: i.ref(rule.Object), Field: rule.Field, Match: match, all: rule.Match == gateways.AnyPath,
		Destinations: []Destination{i.destination(f, d, 100)},
	}
	out.judge()
	return out
}

// judge sets the trouble of a rule none of whose destinations can answer.
func (r *Route) judge() {
	for _, d := range r.Destinations {
		if d.Trouble == "" {
			return
		}
		r.Trouble = d.Trouble
	}
}

// connections returns the rules of a VirtualService for connections to a server that does not take requests.
func (i *inquiry) connections(f front, s *gateway.Placed, object api.Key) (list []Route) {
	vs, ok := i.Queries.Gateways.Rules(i.r, object)
	if !ok {
		return nil
	}
	add := func(field, match string, to []*networking.RouteDestination) {
		r := Route{Object: i.ref(object), Field: field, Match: match}
		for _, d := range to {
			percent := d.Weight
			if len(to) == 1 {
				percent = 100
			}
			r.Destinations = append(r.Destinations, i.destination(f, d.Destination, percent))
		}
		r.judge()
		list = append(list, r)
	}
	if s.Kind() == gateways.PassesTLS {
		for n, rule := range vs.Spec.Tls {
			for m, match := range rule.Match {
				if slices.ContainsFunc(match.SniHosts, func(h string) bool { return mesh.Covers(strings.ToLower(h), i.Host) }) {
					add(fmt.Sprintf("spec.tls[%d].match[%d]", n, m), "SNI "+strings.Join(match.SniHosts, ", "), rule.Route)
				}
			}
		}
		return list
	}
	for n, rule := range vs.Spec.Tcp {
		add(fmt.Sprintf("spec.tcp[%d]", n), "connections", rule.Route)
	}
	return list
}

// destination describes where requests go, with its endpoints.
func (i *inquiry) destination(f front, d *networking.Destination, percent int32) Destination {
	out := Destination{Host: d.GetHost(), Subset: d.GetSubset(), Port: d.GetPort().GetNumber(), Percent: percent}
	view := service.HostView{Host: out.Host, Viewer: i.Queries.Scope.Viewer(i.r, out.Host, f.Namespace)}
	s, ok := i.Queries.Services.Service.Get(i.r, view)
	if !ok {
		out.Trouble = "gateways of namespace " + f.Namespace + " see no such service: requests get 503"
		return out
	}
	if out.Port == 0 && len(s.Ports) == 1 {
		out.Port = s.Ports[0].Number
	}
	if _, ok := s.Port(out.Port); !ok {
		out.Trouble = fmt.Sprintf("the service has no port %d: requests get 503", out.Port)
		return out
	}
	policy, _ := i.Queries.Rules.Policy.Get(i.r, view)
	subset := policy.Subset(out.Subset)
	if out.Subset != "" && subset == nil {
		out.Trouble = fmt.Sprintf("no DestinationRule declares the subset %q: requests get 503", out.Subset)
		return out
	}
	for _, e := range i.Queries.Services.Endpoints(i.r, s, out.Port) {
		if !e.Has(subset.GetLabels()) {
			continue
		}
		out.Endpoints++
		if e.Health == mesh.Healthy {
			out.Healthy++
		}
	}
	if named := s.Resolution == mesh.Passthrough || s.Resolution == mesh.DynamicDNS; out.Healthy == 0 && !named {
		out.Trouble = "it has no healthy endpoint: requests get 503"
	}
	return out
}
