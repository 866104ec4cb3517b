package transport

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
)

// Calls of Dubbo are routed by the rules for HTTP of VirtualServices, which also are the rules for Triple: the path /INTERFACE/METHOD is the
// method, and headers are attachments. Envoy's dubbo_proxy can do no more than choose clusters, so that the rest of a rule is a DubboLoss.

// Matching is how a text is compared.
type Matching uint8

// The comparisons. Present takes any text.
const (
	Present Matching = iota
	Exact
	Prefix
	Regex
)

// Text is a condition on a text.
type Text struct {
	Matching Matching
	Value    string
}

// Attachment is a condition on an attachment of a call.
type Attachment struct {
	Name string
	Text
	// Not inverts the condition. An attachment that the call does not have counts as empty then.
	Not bool
}

// CallRule sends calls of Dubbo that match it to destinations.
type CallRule struct {
	Method       Text
	Attachments  []Attachment
	Destinations []Destination
}

// DubboLoss is a part of a rule for HTTP that has no effect on calls of Dubbo.
type DubboLoss struct {
	Field, Reason string
}

// callRules are the rules for calls of an interface, up to the first that takes all of them.
func (b *builder) callRules(objects []*state.VirtualService, i mesh.DubboInterface) (list []CallRule) {
	for _, vs := range objects {
		for _, rule := range vs.Spec.Http {
			if len(rule.Route) == 0 {
				continue // a redirect or a direct response
			}
			to := b.callDestinations(rule.Route)
			if len(rule.Match) == 0 {
				return append(list, CallRule{Destinations: to})
			}
			for _, m := range rule.Match {
				if !b.applies(m) || len(unmatchable("", m)) > 0 {
					continue
				}
				method, ok := methodOf(m.Uri, i.Interface)
				if !ok {
					continue
				}
				list = append(list, CallRule{method, attachments(m), to})
			}
		}
	}
	return list
}

// callDestinations are the destinations of a rule for HTTP.
func (b *builder) callDestinations(routes []*networking.HTTPRouteDestination) (list []Destination) {
	for _, d := range routes {
		if len(routes) > 1 && d.Weight <= 0 {
			continue
		}
		list = append(list, b.destination(&networking.RouteDestination{Destination: d.Destination, Weight: d.Weight}))
	}
	if len(list) == 0 {
		return []Destination{{}}
	}
	return list
}

// methodOf is the condition on the method that a path expresses. ok is false if no call of the interface has such a path.
func methodOf(uri *networking.StringMatch, name string) (method Text, ok bool) {
	root := "/" + name + "/"
	switch u := uri.GetMatchType().(type) {
	case nil:
		return Text{}, true
	case *networking.StringMatch_Exact:
		rest, ok := strings.CutPrefix(u.Exact, root)
		return Text{Exact, rest}, ok && rest != ""
	case *networking.StringMatch_Prefix:
		if strings.HasPrefix(root, u.Prefix) {
			return Text{}, true
		}
		rest, ok := strings.CutPrefix(u.Prefix, root)
		return Text{Prefix, rest}, ok
	}
	return Text{}, false
}

// attachments are the conditions on headers, as conditions on attachments. Envoy keeps their names in lower case.
func attachments(m *networking.HTTPMatchRequest) (list []Attachment) {
	for _, part := range []struct {
		headers map[string]*networking.StringMatch
		not     bool
	}{{m.Headers, false}, {m.WithoutHeaders, true}} {
		for _, name := range slices.Sorted(maps.Keys(part.headers)) {
			list = append(list, Attachment{strings.ToLower(name), textOf(part.headers[name]), part.not})
		}
	}
	return list
}

func textOf(m *networking.StringMatch) Text {
	switch s := m.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return Text{Exact, s.Exact}
	case *networking.StringMatch_Prefix:
		return Text{Prefix, s.Prefix}
	case *networking.StringMatch_Regex:
		if s.Regex != "*" {
			return Text{Regex, s.Regex}
		}
	}
	return Text{}
}

// unmatchable are the conditions of a match that calls of Dubbo do not have. A match with one of them takes no calls.
func unmatchable(at string, m *networking.HTTPMatchRequest) (list []DubboLoss) {
	add := func(there bool, field, reason string) {
		if there {
			list = append(list, DubboLoss{at + field, reason})
		}
	}
	const without = "calls of Dubbo have none, so that the match takes no calls"
	_, regex := m.GetUri().GetMatchType().(*networking.StringMatch_Regex)
	add(regex, "uri.regex", "the match takes no calls of Dubbo: write exact or prefix, as /INTERFACE/METHOD")
	add(m.Scheme != nil, "scheme", without)
	add(m.Method != nil, "method", "calls of Dubbo have no method of HTTP, so that the match takes no calls: match uri with /INTERFACE/METHOD")
	add(m.Authority != nil, "authority", without)
	add(len(m.QueryParams) > 0, "queryParams", without)
	add(m.IgnoreUriCase, "ignoreUriCase", "names of methods are compared with their case, so that the match takes no calls")
	add(len(m.SourceLabels) > 0, "sourceLabels", "Pilot does not compare them for calls of Dubbo, so that the match takes no calls: write them in a rule for tcp")
	return list
}

// DubboLosses returns the parts of the rules of a VirtualService for HTTP that have no effect on calls of an interface. ports are the ports
// of the service.
func DubboLosses(spec *networking.VirtualService, i mesh.DubboInterface, ports []mesh.Port) (list []DubboLoss) {
	applies := func(m *networking.HTTPMatchRequest) bool {
		return slices.ContainsFunc(ports, func(p mesh.Port) bool {
			return p.Protocol == mesh.Dubbo && (m.GetPort() == 0 || m.GetPort() == p.Number)
		})
	}
	for n, rule := range spec.Http {
		at := fmt.Sprintf("spec.http[%d].", n)
		if len(rule.Match) > 0 && !slices.ContainsFunc(rule.Match, applies) {
			continue
		}
		for j, m := range rule.Match {
			if !applies(m) {
				continue
			}
			place := fmt.Sprintf("%smatch[%d].", at, j)
			list = append(list, unmatchable(place, m)...)
			if _, ok := methodOf(m.Uri, i.Interface); !ok && m.GetUri().GetRegex() == "" {
				list = append(list, DubboLoss{place + "uri", "no call of the interface has this path: write /" + i.Interface + "/METHOD"})
			}
		}
		list = append(list, undoable(at, rule)...)
	}
	return list
}

// undoable are the actions of a rule for HTTP that Envoy does not have for calls of Dubbo.
func undoable(at string, rule *networking.HTTPRoute) (list []DubboLoss) {
	const (
		nothing = "Envoy has no such action for calls of the protocol Dubbo: the rule does nothing"
		without = "Envoy has no such action for calls of the protocol Dubbo, and forwards them without it; Triple has it"
	)
	for _, part := range []struct {
		there         bool
		field, reason string
	}{
		{rule.Redirect != nil, "redirect", nothing}, {rule.DirectResponse != nil, "directResponse", nothing}, {rule.Delegate != nil, "delegate", nothing},
		{rule.Timeout != nil, "timeout", without}, {rule.Retries != nil, "retries", without}, {rule.Fault != nil, "fault", without},
		{rule.Mirror != nil, "mirror", without}, {len(rule.Mirrors) > 0, "mirrors", without}, {rule.Rewrite != nil, "rewrite", without},
		{rule.CorsPolicy != nil, "corsPolicy", without}, {rule.Headers != nil, "headers", without},
	} {
		if part.there {
			list = append(list, DubboLoss{at + part.field, part.reason})
		}
	}
	return list
}

// appendCalls appends an encoding of the rules for calls of Dubbo.
func (p Part) appendCalls(b []byte) []byte {
	if p.Dubbo == nil {
		return b
	}
	return fmt.Appendf(b, " %q %#v", *p.Dubbo, p.Calls)
}
