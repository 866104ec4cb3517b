package problem

import (
	"fmt"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/fields"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/state/selected"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
)

func (f *findings) destinationRule() {
	rule, ok := f.q.tables.DestinationRules.Get(f.r, f.key)
	if !ok {
		return
	}
	f.clientCredentials(rule)
	if len(rule.Selector) > 0 {
		f.idlePolicies(rule, rule.Host)
		f.clientTLS(rule, rule.Host)
		f.selectorWithoutWorkload("spec.workloadSelector", rule.Selector, func(id string) bool {
			class, ok := f.q.scope.Class.Get(f.r, id)
			return ok && class.Rules.Has(f.key.Name)
		})
		f.unused(hostClaims{host: rule.Host, all: f.q.tables.ByHost.Group(f.r, rule.Host)})
		f.selectorLimit()
		return
	}
	for _, c := range f.claims("spec.host") {
		f.unused(c)
		f.idlePolicies(rule, c.host)
		f.clientTLS(rule, c.host)
		for o := range c.older(f.key) {
			if o.Namespace != f.key.Namespace {
				continue
			}
			first, ok := f.q.tables.DestinationRules.Get(f.r, o.Object())
			if !ok || first.Audience != rule.Audience {
				continue
			}
			f.mergedRule(rule, first)
			break
		}
		f.otherAudience(c, rule)
	}
}

// unused warns of a rule for a host without a service.
func (f *findings) unused(c hostClaims) {
	for o := range c.all.All() {
		if o.Kind == claim.Service {
			return
		}
	}
	if mesh.IsWildcard(c.host) {
		if c.host == "*" || f.q.tables.Hosts.ServiceUnder.Group(f.r, c.host).Len() > 0 {
			return
		}
	}
	f.warn("rule-no-host", "spec.host", "there is no service %q: the rule has no effect%s", c.host, f.hostHint(c.host))
}

// idlePolicies warns of settings of a rule that have no effect on its service: those for ports that the service does not have, or
// that speak another protocol, and subsets without endpoints.
func (f *findings) idlePolicies(rule *state.DestinationRule, host string) {
	s, ok := f.q.services.Service.Get(f.r, service.HostView{Host: host, Viewer: f.q.scope.Viewer(f.r, host, f.key.Namespace)})
	if !ok {
		return
	}
	f.idlePolicy(rule.Spec.TrafficPolicy, "spec.trafficPolicy", s)
	for i, subset := range rule.Spec.Subsets {
		at := fmt.Sprintf("spec.subsets[%d]", i)
		f.idlePolicy(subset.GetTrafficPolicy(), at+".trafficPolicy", s)
		if i >= maxChecked || s.Resolution == mesh.Passthrough || s.Resolution == mesh.DynamicDNS {
			continue // these have no endpoints to choose from
		}
		switch missing := f.q.services.MissingLabels(f.r, s, subset.GetLabels()); len(missing) {
		case 0:
		case 1:
			f.warn("subset-no-endpoint", at+".labels", "no endpoint of %q has the label %s: traffic to subset %q fails; correct the label, or give it to an endpoint%s",
				host, missing[0], subset.GetName(), labelHint(missing[0], f.q.services.SomeLabels(f.r, s)))
		default:
			f.warn("subset-no-endpoint", at+".labels", "no endpoint of %q has all of the labels %s, although each is on some endpoint: traffic to subset %q fails; correct the labels, or give them to one endpoint",
				host, joined(missing), subset.GetName())
		}
	}
}

// joined shows labels as "a=1, b=2".
func joined(labels []mesh.Label) string {
	texts := make([]string, 0, len(labels))
	for _, l := range labels {
		texts = append(texts, l.String())
	}
	return strings.Join(texts, ", ")
}

// idlePolicy warns of settings of one traffic policy that have no effect on a service.
func (f *findings) idlePolicy(policy *networking.TrafficPolicy, at string, s *service.Service) {
	if policy == nil {
		return
	}
	for i, l := range policy.PortLevelSettings {
		if _, ok := s.Port(l.GetPort().GetNumber()); !ok {
			f.warn("rule-no-port", fmt.Sprintf("%s.portLevelSettings[%d].port.number", at, i), "the service %q has no port %d: these settings do nothing; its ports are %s",
				s.Host, l.GetPort().GetNumber(), service.ListPorts(s.Ports))
		}
	}
	for _, idle := range fields.InPolicy(policy, at, fields.Scope{Ports: s.Ports, HTTP2: f.q.tables.HTTP2Upgrade(f.r)}) {
		f.warn("field-ineffective", idle.Field, "%s", idle.Reason)
	}
}

// selectorWithoutWorkload warns of a selector that selects no known workload: no declared endpoint has its labels, and it selects
// no connected proxy. has reports whether the proxy with an id is selected.
func (f *findings) selectorWithoutWorkload(at string, selector map[string]string, has func(id string) bool) {
	if f.q.services.MayHaveWorkload(f.r, f.key.Namespace, selector) {
		return
	}
	checked := 0
	for id := range f.q.tables.ProxiesIn.Group(f.r, f.key.Namespace).All() {
		if checked++; checked > maxChecked {
			return // one of the others may be selected
		}
		if has(string(id)) {
			return
		}
	}
	f.warn("selector-no-workload", at, "no workload of namespace %q is known that has the labels %s: no endpoint is declared with them, and no such proxy is connected; the object has no effect%s",
		f.key.Namespace, mesh.FormatLabels(selector), f.selectorHint(selector))
}

// mergedRule warns of settings that have no effect because an older rule of the namespace, for the same host, has them too.
func (f *findings) mergedRule(rule, first *state.DestinationRule) {
	if rule.Spec.TrafficPolicy != nil && first.Spec.TrafficPolicy != nil {
		f.conflict("rule-overruled", "spec.trafficPolicy", "%s is older and has a policy for %q: that one counts", first.Object, rule.Host)
	}
	for i, s := range rule.Spec.Subsets {
		for _, o := range first.Spec.Subsets {
			if o.Name == s.Name {
				f.conflict("rule-overruled", fmt.Sprintf("spec.subsets[%d]", i), "%s is older and has a subset %q: that one counts", first.Object, s.Name)
			}
		}
	}
}

// otherAudience warns of a younger rule that is exported to other namespaces: callers that see both use only the younger one.
func (f *findings) otherAudience(c hostClaims, rule *state.DestinationRule) {
	own, checked := selected.AgeKey{Created: rule.Created, Key: f.key}, 0
	for o := range c.all.All() {
		if o.Kind != claim.Policy || o.Namespace != f.key.Namespace || own.Compare(selected.AgeKey{Created: o.Created, Key: o.Object()}) >= 0 {
			continue
		}
		if checked++; checked > maxChecked {
			return
		}
		if other, ok := f.q.tables.DestinationRules.Get(f.r, o.Object()); ok && other.Audience != rule.Audience {
			f.conflict("rule-overruled", "spec.exportTo", "%s is younger and exported to others: callers that see both obey only that one for %q", other.Object, c.host)
			return
		}
	}
}

// selectorLimit warns of a rule that is not used, because its namespace has too many rules with a workload selector.
func (f *findings) selectorLimit() {
	before := 0
	for at := range f.q.tables.SelectingPolicies.Group(f.r, f.key.Namespace).All() {
		if at.Key == f.key {
			break
		}
		before++
	}
	if before >= scope.MaxSelectingRules {
		f.warn("limit-exceeded", "spec.workloadSelector", "namespace %q has more than %d rules with a selector, and this one is not used; make fewer", f.key.Namespace, scope.MaxSelectingRules)
	}
}
