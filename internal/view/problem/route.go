package problem

import (
	"fmt"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

func (f *findings) virtualService() {
	for at, c := range f.claims("spec.hosts") {
		for o := range c.older(f.key) {
			f.conflict(at, "%s goes first, by age or else by name, and has routes for %q too: for ports and callers that both have rules for, only those count", o.Object(), c.host)
			break
		}
	}
	vs, ok := f.q.tables.VirtualServices.Get(f.r, f.key)
	switch {
	case !ok:
		return
	case vs.IsDelegate():
		if f.q.tables.DelegatedBy.Group(f.r, f.key).Len() == 0 {
			f.warn("spec.hosts", "there are none, and no rule of another VirtualService delegates to this one: it has no effect")
		}
	case len(vs.Hosts) == 0:
		return // for gateways
	case vs.Delegates():
		f.delegated()
	}
	checked := 0
	for at, d := range httpDestinations(vs.Spec) {
		if checked++; checked > maxChecked {
			break
		}
		f.destination(at, d)
	}
	for at, d := range connectionDestinations(vs.Spec) {
		if checked++; checked > maxChecked {
			break
		}
		f.destination(at, d)
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
		f.warn(d.Field, "%s", d.Reason)
	}
	if len(m.Spec.Http) == 0 {
		f.warn("spec.http", "no rule is left: the object counts as absent")
	}
}

// httpDestinations yields the destinations of HTTP rules, each with the path of its field.
func httpDestinations(spec *networking.VirtualService) func(yield func(at string, d *networking.Destination) bool) {
	return func(yield func(string, *networking.Destination) bool) {
		for i, rule := range spec.Http {
			for j, d := range rule.Route {
				if !yield(fmt.Sprintf("spec.http[%d].route[%d].destination", i, j), d.Destination) {
					return
				}
			}
			if rule.Mirror != nil && !yield(fmt.Sprintf("spec.http[%d].mirror", i), rule.Mirror) {
				return
			}
			for j, m := range rule.Mirrors {
				if !yield(fmt.Sprintf("spec.http[%d].mirrors[%d].destination", i, j), m.Destination) {
					return
				}
			}
		}
	}
}

// connectionDestinations yields the destinations of the rules for TLS and TCP, each with the path of its field.
func connectionDestinations(spec *networking.VirtualService) func(yield func(at string, d *networking.Destination) bool) {
	return func(yield func(string, *networking.Destination) bool) {
		for i, rule := range spec.Tls {
			for j, d := range rule.Route {
				if !yield(fmt.Sprintf("spec.tls[%d].route[%d].destination", i, j), d.Destination) {
					return
				}
			}
		}
		for i, rule := range spec.Tcp {
			for j, d := range rule.Route {
				if !yield(fmt.Sprintf("spec.tcp[%d].route[%d].destination", i, j), d.Destination) {
					return
				}
			}
		}
	}
}

// targets warns of rules that lead to more hosts than are looked at.
func (f *findings) targets(vs *state.VirtualService) {
	hosts := map[string]bool{}
	for _, d := range httpDestinations(vs.Spec) {
		hosts[d.GetHost()] = true
	}
	if len(hosts) > traffic.MaxTargets {
		f.warn("spec.http", "the rules lead to %d hosts: ports that are left out and consistent hashing count for the first %d only; name the ports, or split the object",
			len(hosts), traffic.MaxTargets)
	}
}

// destination warns of a destination without a service, port or subset.
func (f *findings) destination(at string, d *networking.Destination) {
	host := d.GetHost()
	home := ""
	for c := range f.q.tables.ByHost.Group(f.r, host).All() {
		if c.Kind == state.ServiceClaim {
			home = c.Namespace
			break
		}
	}
	if home == "" {
		f.warn(at+".host", "there is no service %q: what is sent there fails", host)
		return
	}
	layer := f.q.scope.Viewer(f.r, host, f.key.Namespace)
	s, ok := f.q.services.Service.Get(f.r, service.HostView{Host: host, Viewer: layer})
	if !ok {
		f.warn(at+".host", "the service %q is not exported to namespace %q: what is sent there from there fails", host, f.key.Namespace)
		return
	}
	if n := d.GetPort().GetNumber(); n != 0 {
		if _, ok := s.Port(n); !ok {
			f.warn(at+".port.number", "the service %q has no port %d: what is sent there fails", host, n)
		}
	}
	if d.GetSubset() == "" {
		return
	}
	policy, ok := f.q.traffic.Policy.Get(f.r, service.HostView{Host: host, Viewer: layer})
	if ok {
		for _, s := range policy.Subsets {
			if s.Name == d.Subset {
				return
			}
		}
	}
	f.warn(at+".subset", "no DestinationRule seen from namespace %q gives %q a subset %q: what is sent there fails", f.key.Namespace, host, d.Subset)
}
