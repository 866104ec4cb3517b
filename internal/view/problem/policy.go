package problem

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
)

func (f *findings) destinationRule() {
	rule, ok := f.q.tables.DestinationRules.Get(f.r, f.key)
	if !ok {
		return
	}
	if len(rule.Selector) > 0 {
		f.unused(claimed{host: rule.Host, all: f.q.tables.ByHost.Group(f.r, rule.Host)})
		f.beyondSelecting()
		return
	}
	for _, c := range f.claims("spec.host") {
		f.unused(c)
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
		f.outshone(c, rule)
	}
}

// unused tells of a rule for nothing.
func (f *findings) unused(c claimed) {
	for o := range c.all.All() {
		if o.Kind == state.ServiceClaim {
			return
		}
	}
	if mesh.IsWildcard(c.host) {
		if c.host == "*" || f.q.tables.Hosts.Group(f.r, state.HostGroup{By: state.ServiceUnder, Of: c.host}).Len() > 0 {
			return
		}
	}
	f.warn("spec.host", "there is no service %q: the rule has no effect", c.host)
}

// mergedRule tells what is lost where a namespace has two rules for a host.
func (f *findings) mergedRule(rule, first *state.DestinationRule) {
	if rule.Spec.TrafficPolicy != nil && first.Spec.TrafficPolicy != nil {
		f.warn("spec.trafficPolicy", "%s is older and has a policy for %q: that one counts", first.Object, rule.Host)
	}
	for i, s := range rule.Spec.Subsets {
		for _, o := range first.Spec.Subsets {
			if o.Name == s.Name {
				f.warn(fmt.Sprintf("spec.subsets[%d]", i), "%s is older and has a subset %q: that one counts", first.Object, s.Name)
			}
		}
	}
}

// outshone tells of a younger rule that is for other callers: who sees both obeys that one.
func (f *findings) outshone(c claimed, rule *state.DestinationRule) {
	own, looked := state.Aged{Created: rule.Created, Key: f.key}, 0
	for o := range c.all.All() {
		if o.Kind != state.PolicyClaim || o.Namespace != f.key.Namespace || own.Compare(state.Aged{Created: o.Created, Key: o.Object()}) >= 0 {
			continue
		}
		if looked++; looked > maxChecked {
			return
		}
		if other, ok := f.q.tables.DestinationRules.Get(f.r, o.Object()); ok && other.Audience != rule.Audience {
			f.warn("spec.exportTo", "%s is younger and exported to others: callers that see both obey only that one for %q", other.Object, c.host)
			return
		}
	}
}

// beyondSelecting tells of a rule that is not looked at, because a namespace has too many that select workloads.
func (f *findings) beyondSelecting() {
	before := 0
	for at := range f.q.tables.SelectingPolicies.Group(f.r, f.key.Namespace).All() {
		if at.Key == f.key {
			break
		}
		before++
	}
	if before >= scope.MaxSelecting {
		f.warn("spec.workloadSelector", "namespace %q has more than %d rules with a selector, and this one is not used; make fewer", f.key.Namespace, scope.MaxSelecting)
	}
}
