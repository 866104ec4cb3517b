package problem

import (
	"fmt"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

func (f *findings) virtualService() {
	for at, c := range f.claims("spec.hosts") {
		for o := range c.older(f.key) {
			f.conflict("route-overruled", at, "%s goes first, by age or else by name, and has routes for %q too: for ports and callers that both have rules for, only those count", o.Object(), c.host)
			break
		}
	}
	f.missingGateways()
	f.lostRules()
	f.foreignHost()
	vs, ok := f.q.tables.VirtualServices.Get(f.r, f.key)
	if !ok {
		return
	}
	f.unserved(vs)
	f.unverifiedMatches(vs)
	switch {
	case vs.IsDelegate():
		if f.q.tables.DelegatedBy.Group(f.r, f.key).Len() == 0 && f.q.tables.Gateways.BoundDelegates.Group(f.r, f.key).Len() == 0 {
			f.warn("delegate-unused", "spec.hosts", "there are none, and no rule of another VirtualService delegates to this one: it has no effect")
		}
	case len(vs.Hosts) == 0:
		return // for gateways
	case vs.Delegates():
		f.delegated()
	}
	checked := 0
	for _, all := range []func(func(target) bool){httpTargets(vs.Spec), connectionTargets(vs.Spec)} {
		for t := range all {
			if checked++; checked > maxChecked {
				break
			}
			f.destination(t)
		}
	}
	f.targets(vs)
	f.idleRules(vs)
}

// delegated warns of rules of delegates, and of delegates, that have no effect.
func (f *findings) delegated() {
	m, ok := f.q.traffic.Merged.Get(f.r, f.key)
	if !ok {
		return
	}
	for _, d := range m.Dropped {
		f.warn("delegate-rule-dropped", d.Field, "%s", d.Reason)
	}
	if len(m.Spec.Http) == 0 {
		f.warn("route-empty", "spec.http", "no rule is left: the object counts as absent")
	}
}

// httpTargets yields the destinations of HTTP rules.
func httpTargets(spec *networking.VirtualService) func(yield func(target) bool) {
	return func(yield func(target) bool) {
		for i, rule := range spec.Http {
			for j, d := range rule.Route {
				idle := len(rule.Route) > 1 && d.Weight == 0
				if !yield(target{fmt.Sprintf("spec.http[%d].route[%d].destination", i, j), d.Destination, idle}) {
					return
				}
			}
			if rule.Mirror != nil && !yield(target{fmt.Sprintf("spec.http[%d].mirror", i), rule.Mirror, false}) {
				return
			}
			for j, m := range rule.Mirrors {
				if !yield(target{fmt.Sprintf("spec.http[%d].mirrors[%d].destination", i, j), m.Destination, false}) {
					return
				}
			}
		}
	}
}

// connectionTargets yields the destinations of the rules for TLS and TCP.
func connectionTargets(spec *networking.VirtualService) func(yield func(target) bool) {
	return func(yield func(target) bool) {
		part := func(at string, routes []*networking.RouteDestination) bool {
			for j, d := range routes {
				idle := len(routes) > 1 && d.Weight == 0
				if !yield(target{fmt.Sprintf("%s.route[%d].destination", at, j), d.Destination, idle}) {
					return false
				}
			}
			return true
		}
		for i, rule := range spec.Tls {
			if !part(fmt.Sprintf("spec.tls[%d]", i), rule.Route) {
				return
			}
		}
		for i, rule := range spec.Tcp {
			if !part(fmt.Sprintf("spec.tcp[%d]", i), rule.Route) {
				return
			}
		}
	}
}

// targets warns of rules that lead to more hosts than are looked at.
func (f *findings) targets(vs *state.VirtualService) {
	hosts := map[string]bool{}
	for t := range httpTargets(vs.Spec) {
		hosts[t.to.GetHost()] = true
	}
	if len(hosts) > traffic.MaxTargets {
		f.warn("limit-exceeded", "spec.http", "the rules lead to %d hosts: ports that are left out and consistent hashing count for the first %d only; name the ports, or split the object",
			len(hosts), traffic.MaxTargets)
	}
}

// target is a destination of a rule, with the path of its field.
type target struct {
	at string
	to *networking.Destination
	// idle is true if nothing is sent to it, because its weight is 0.
	idle bool
}

// destination reports a destination without a service, port or subset.
func (f *findings) destination(t target) {
	report := f.fail
	if t.idle {
		report = f.warn
	}
	host := t.to.GetHost()
	if !f.isService(host) {
		host, _, _ = f.q.services.AliasOf(f.r, host, f.key.Namespace)
	}
	if !f.isService(host) {
		report("route-no-host", t.at+".host", "there is no service %q: traffic to it fails%s", host, f.hostHint(host))
		return
	}
	view := service.HostView{Host: host, Viewer: f.q.scope.Viewer(f.r, host, f.key.Namespace)}
	s, ok := f.q.services.Service.Get(f.r, view)
	if !ok {
		report("route-not-exported", t.at+".host", "the service %q is not exported to namespace %q: traffic from there to it fails; add the namespace to exportTo of the service", host, f.key.Namespace)
		return
	}
	if n := t.to.GetPort().GetNumber(); n != 0 {
		if _, ok := s.Port(n); !ok {
			report("route-no-port", t.at+".port.number", "the service %q has no port %d: traffic to it fails; its ports are %s", host, n, service.ListPorts(s.Ports))
		}
	}
	wanted := t.to.GetSubset()
	if wanted == "" {
		return
	}
	policy, ok := f.q.traffic.Policy.Get(f.r, view)
	var names []string
	if ok {
		for _, s := range policy.Subsets {
			names = append(names, s.Name)
		}
	}
	if !slices.Contains(names, wanted) {
		report("route-no-subset", t.at+".subset", "no DestinationRule seen from namespace %q gives %q a subset %q: traffic to it fails%s",
			f.key.Namespace, host, wanted, choice(wanted, names, "its subsets are", "it has no subsets; declare them in a DestinationRule"))
	}
}

// isService reports whether some object declares the service of a host.
func (f *findings) isService(host string) bool {
	for c := range f.q.tables.ByHost.Group(f.r, host).All() {
		if c.Kind == claim.Service {
			return true
		}
	}
	return false
}
