package problem

import (
	"fmt"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
)

func (f *findings) serviceEntry() {
	spec, ok := f.q.tables.Services.Get(f.r, f.key)
	if !ok {
		return
	}
	for i, p := range spec.Ports {
		if p.Number == mesh.ProxyOutboundPort || p.Number == mesh.ProxyInboundPort {
			f.warn(fmt.Sprintf("spec.ports[%d].number", i), "port %d is the proxy's own: the service cannot be reached there", p.Number)
		}
	}
	for at, c := range f.claims("spec.hosts") {
		for o := range c.older(f.key) {
			if o.Namespace != f.key.Namespace {
				f.warn(at, "%s is older and declares %q too: this declaration is seen in namespace %q only", o.Object(), c.host, f.key.Namespace)
				break
			}
			if first, ok := f.q.tables.Services.Get(f.r, o.Object()); ok {
				f.merged(at, c.host, o, spec, first)
			}
			break
		}
		f.addresses(c.host)
	}
}

// merged tells what is lost where a namespace declares a host twice.
func (f *findings) merged(at, host string, o state.Claim, spec, first *mesh.Service) {
	if spec.Resolution != first.Resolution {
		f.warn(at, "%s is older and declares %q with another resolution: that one counts", o.Object(), host)
	}
	for i, p := range spec.Ports {
		if was, ok := first.Port(p.Number); ok && was.Protocol != p.Protocol {
			f.warn(fmt.Sprintf("spec.ports[%d].protocol", i), "%s is older and declares port %d of %q as %q: that counts", o.Object(), p.Number, host, was.Protocol)
		}
	}
}

// addresses tells which addresses of a host another one has.
func (f *findings) addresses(host string) {
	fp, ok := f.q.services.Footprint(f.r, service.View{Host: host})
	if !ok {
		return
	}
	for _, at := range fp.TCP {
		if f.addressesLeft--; f.addressesLeft < 0 {
			return
		}
		f.losses(host, at)
	}
	for _, ip := range fp.VIPs {
		if f.addressesLeft--; f.addressesLeft < 0 {
			return
		}
		at := service.Address{IP: ip, Port: fp.HTTP[0]}
		for c := range f.q.services.Taken.Names.Group(f.r, service.All{}, at).All() {
			if c.Host != host && c.Created <= fp.Created {
				f.warn("spec.addresses", "%s, port %d, belongs to the older service %q: requests there do not reach %q; give it an address of its own", ip, at.Port, c.Host, host)
			}
			break
		}
	}
}

// losses tells which connections to an address that a host wants another one has.
func (f *findings) losses(host string, at service.Address) {
	ip := at.IP
	if ip == "" {
		ip = "any address"
	}
	for _, l := range f.q.transport.Losses(f.r, host, at) {
		switch {
		case l.Name != "":
			f.warn("spec.hosts", "%s, port %d: the older service %q has the TLS name %q: connections that ask for it do not reach %q", ip, at.Port, l.Winner, l.Name, host)
		case l.Block != "":
			f.warn("spec.addresses", "%s, port %d, belongs to the older service %q: connections there do not reach %q; give it addresses of its own", l.Block, at.Port, l.Winner, host)
		default:
			f.warn("spec.addresses", "%s, port %d, belongs to the older service %q: connections there do not reach %q; give it an address of its own", ip, at.Port, l.Winner, host)
		}
	}
}

func (f *findings) virtualService() {
	for at, c := range f.claims("spec.hosts") {
		for o := range c.older(f.key) {
			f.warn(at, "%s is older and has routes for %q too: for ports and callers that both have rules for, only those count", o.Object(), c.host)
			break
		}
	}
	vs, ok := f.q.tables.VirtualServices.Get(f.r, f.key)
	if !ok || len(vs.Hosts) == 0 {
		return
	}
	checked := 0
	for i, rule := range vs.Spec.Http {
		for j, d := range rule.Route {
			if checked++; checked > maxChecked {
				return
			}
			f.destination(fmt.Sprintf("spec.http[%d].route[%d].destination", i, j), d.Destination)
		}
	}
	connections := func(kind string, i int, list []*networking.RouteDestination) {
		for j, d := range list {
			if checked++; checked <= maxChecked {
				f.destination(fmt.Sprintf("spec.%s[%d].route[%d].destination", kind, i, j), d.Destination)
			}
		}
	}
	for i, rule := range vs.Spec.Tls {
		connections("tls", i, rule.Route)
	}
	for i, rule := range vs.Spec.Tcp {
		connections("tcp", i, rule.Route)
	}
}

// destination tells of a destination that leads nowhere.
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
	layer := f.q.scope.Layer(f.r, host, f.key.Namespace)
	s, ok := f.q.services.Service.Get(f.r, service.View{Host: host, Layer: layer})
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
	policy, ok := f.q.traffic.Policy.Get(f.r, service.View{Host: host, Layer: layer})
	if ok {
		for _, s := range policy.Subsets {
			if s.Name == d.Subset {
				return
			}
		}
	}
	f.warn(at+".subset", "no DestinationRule seen from namespace %q gives %q a subset %q: what is sent there fails", f.key.Namespace, host, d.Subset)
}

func (f *findings) destinationRule() {
	rule, ok := f.q.tables.DestinationRules.Get(f.r, f.key)
	if !ok {
		return
	}
	for _, c := range f.claims("spec.host") {
		f.unused(c)
		for o := range c.older(f.key) {
			if o.Namespace != f.key.Namespace {
				continue
			}
			first, ok := f.q.tables.DestinationRules.Get(f.r, o.Object())
			if !ok {
				continue
			}
			f.mergedRule(rule, first)
			break
		}
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

func (f *findings) sidecar() {
	row, ok := f.q.tables.Sidecars.Get(f.r, f.key)
	if !ok {
		return
	}
	if len(row.Selector) == 0 {
		for o := range f.q.tables.SidecarsBy.Group(f.r, state.InNamespace{Namespace: f.key.Namespace}).All() {
			if o.Key != f.key {
				f.warn("spec.workloadSelector", "%s is older and has no selector either: this one is not used", o.Key)
			}
			break
		}
	}
	groups := 0
	for i, in := range row.Imports {
		if in.Namespace != "*" || mesh.IsWildcard(in.Host) {
			if groups++; groups == scope.MaxGroups {
				f.warn("spec.egress", "only the first %d imports that name a namespace or a pattern are used; import single hosts, or more with fewer patterns", scope.MaxGroups-1)
			}
		}
		if i >= maxChecked {
			continue
		}
		if in.Namespace == "*" && !mesh.IsWildcard(in.Host) && f.q.tables.ByHost.Group(f.r, in.Host).Len() == 0 {
			f.warn("spec.egress", "there is no service or route for host %q", in.Host)
		}
	}
}
