package problem

import (
	"fmt"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/transport"
)

// hostPorts are the ports of the services that the hosts of a VirtualService name.
type hostPorts struct {
	ports []mesh.Port
	// dubbo are the services among them with a port of the protocol Dubbo.
	dubbo []*service.Service
	// more is true if ports is incomplete, because a pattern covers too many services to look at all of them.
	more bool
}

// speak reports whether a port has a protocol for which fits is true, or whether there may be such a port. If number is not 0,
// only ports with this number count.
func (s hostPorts) speak(number uint32, fits func(mesh.Protocol) bool) bool {
	for _, p := range s.ports {
		if (number == 0 || p.Number == number) && fits(p.Protocol) {
			return true
		}
	}
	return s.more
}

func requests(p mesh.Protocol) bool { return p.IsHTTP() || p.Sniffed() }

// routed reports whether rules for HTTP apply to a protocol.
func routed(p mesh.Protocol) bool { return requests(p) || p == mesh.Dubbo }

func connections(p mesh.Protocol) bool { return !p.IsHTTP() && !p.IsTLS() && p != mesh.UDP }

// idleRules warns of hosts without a service, and of rules for ports that no service of the hosts has, or that speak another
// protocol.
func (f *findings) idleRules(vs *state.VirtualService) {
	var all hostPorts
	for i, host := range vs.Hosts {
		if i == maxChecked {
			all.more = true
			break
		}
		s := f.portsOf(host)
		if len(s.ports) == 0 && !s.more {
			f.withoutService(fmt.Sprintf("spec.hosts[%d]", i), host, vs.Spec)
			continue
		}
		all.ports, all.more = append(all.ports, s.ports...), all.more || s.more
		all.dubbo = append(all.dubbo, s.dubbo...)
	}
	f.idleMatches(vs.Spec, all)
	f.dubboLosses(vs.Spec, all.dubbo)
}

// portsOf returns the ports of the services of a host or pattern.
func (f *findings) portsOf(host string) (s hostPorts) {
	add := func(name string) {
		if svc, ok := f.q.services.Service.Get(f.r, service.HostView{Host: name, Viewer: f.q.scope.Viewer(f.r, name, f.key.Namespace)}); ok {
			s.ports = append(s.ports, svc.Ports...)
			if svc.Dubbo != nil && slices.ContainsFunc(svc.Ports, func(p mesh.Port) bool { return p.Protocol == mesh.Dubbo }) {
				s.dubbo = append(s.dubbo, svc)
			}
		}
	}
	add(host)
	if !mesh.IsWildcard(host) {
		if wider, ok := f.q.services.CoveringService(f.r, service.HostView{Host: host, Viewer: f.q.scope.Viewer(f.r, host, f.key.Namespace)}); ok {
			s.ports = append(s.ports, wider.Ports...)
		}
		return s
	}
	checked := 0
	for name := range f.q.tables.Hosts.ServiceUnder.Group(f.r, host).All() {
		if checked++; checked > maxChecked {
			s.more = true
			return s
		}
		add(string(name))
	}
	return s
}

// withoutService warns of a host that no ServiceEntry declares.
func (f *findings) withoutService(at, host string, spec *networking.VirtualService) {
	reason := "there is no service %q: its rules for HTTP count on port %d only"
	switch {
	case len(spec.Http) == 0:
		reason = "there is no service %q: its rules for TLS and TCP do nothing"
	case len(spec.Tls)+len(spec.Tcp) > 0:
		reason += ", and those for TLS and TCP do nothing"
	}
	hint := f.hostHint(host)
	if reason += "%s"; hint == "" {
		hint = "; declare it with a ServiceEntry"
	}
	if len(spec.Http) == 0 {
		f.warn("route-host-no-service", at, reason, host, hint)
		return
	}
	f.warn("route-host-no-service", at, reason, host, service.RoutesOnlyPort, hint)
}

// idleMatches warns of rules and matches that apply to no port of the hosts.
func (f *findings) idleMatches(spec *networking.VirtualService, s hostPorts) {
	if len(s.ports) == 0 {
		s.ports = []mesh.Port{{Number: service.RoutesOnlyPort, Protocol: mesh.HTTP}}
		spec = &networking.VirtualService{Http: spec.Http} // withoutService has warned of the others
	}
	for i, rule := range spec.Http {
		if i == maxChecked {
			return
		}
		for j, m := range rule.GetMatch() {
			f.idleMatch(fmt.Sprintf("spec.http[%d].match[%d].port", i, j), m.GetPort(), s, routed, "HTTP")
		}
	}
	if len(spec.Http) > 0 && !s.speak(0, routed) {
		f.warn("route-wrong-protocol", "spec.http", "no port of the hosts is declared to speak HTTP: these rules do nothing; declare the protocol of a port, or write rules for tcp or tls")
	}
	if len(spec.Tls) > 0 && !s.speak(0, mesh.Protocol.IsTLS) {
		f.warn("route-wrong-protocol", "spec.tls", "no port of the hosts is declared to speak TLS or HTTPS: these rules do nothing; declare the protocol of a port, or write rules for http or tcp")
	} else {
		for i, rule := range spec.Tls {
			for j, m := range rule.GetMatch() {
				f.idleMatch(fmt.Sprintf("spec.tls[%d].match[%d].port", i, j), m.GetPort(), s, mesh.Protocol.IsTLS, "TLS or HTTPS")
			}
		}
	}
	if len(spec.Tcp) > 0 && !s.speak(0, connections) {
		f.warn("route-wrong-protocol", "spec.tcp", "all ports of the hosts are declared to speak HTTP or TLS: these rules do nothing; declare a port TCP, or write rules for http or tls")
		return
	}
	for i, rule := range spec.Tcp {
		for j, m := range rule.GetMatch() {
			f.idleMatch(fmt.Sprintf("spec.tcp[%d].match[%d].port", i, j), m.GetPort(), s, connections, "TCP")
		}
	}
}

// idleMatch warns of a match for a port that does not exist, or that speaks another protocol.
func (f *findings) idleMatch(at string, number uint32, s hostPorts, fits func(mesh.Protocol) bool, what string) {
	any := func(mesh.Protocol) bool { return true }
	switch {
	case number == 0 || s.speak(number, fits):
	case s.speak(number, any):
		f.warn("route-wrong-protocol", at, "port %d of the hosts is not declared to speak %s: the match never applies; correct the port, or its protocol", number, what)
	default:
		f.warn("match-no-port", at, "no service of the hosts has port %d: the match never applies; their ports are %s", number, service.ListPorts(s.ports))
	}
}

// dubboLosses warns of parts of rules for HTTP that have no effect on calls of the protocol Dubbo.
func (f *findings) dubboLosses(spec *networking.VirtualService, services []*service.Service) {
	said := map[transport.DubboLoss]bool{}
	for i, s := range services {
		if i == maxChecked {
			return
		}
		for j, loss := range transport.DubboLosses(spec, *s.Dubbo, s.Ports) {
			if j == maxChecked {
				return
			}
			if !said[loss] {
				said[loss] = true
				f.warn("route-dubbo", loss.Field, "%s", loss.Reason)
			}
		}
	}
}
