package transport

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
)

// evaluatePart computes the connections that a host asks for at an address.
func (q *Queries) evaluatePart(r *query.Reader, k partKey) (Part, bool) {
	if k.Host == "" {
		return Part{}, false
	}
	s, own := q.services.Service.Get(r, k.HostView)
	if !own {
		wider, ok := q.services.CoveringService(r, k.HostView)
		if !ok {
			return Part{}, false
		}
		s = wider
	}
	port, ok := portAt(s, k.at)
	if !ok || !s.Headless && !k.options.FromSidecar && k.at.IP != "" && !s.ListensAt(k.at.IP, k.families, k.cluster) {
		return Part{}, false
	}
	if k.options.Protocol != mesh.Auto {
		port.Protocol = k.options.Protocol
	}
	b := &builder{q: q, r: r, view: k.HostView, service: s, port: port, clients: k.clients}
	if k.at.IP == "" && !k.notIntercepted {
		b.blocks = s.Blocks()
	}
	if k.at.IP == "" || k.options.FromSidecar {
		b.serverNames = []string{s.Host}
	}
	objects, _ := q.traffic.Routes.Get(r, k.HostView)
	switch {
	case !own:
		b.addNarrower(k.Host, objects)
		return Part{Host: k.Host, namespace: s.Namespace, options: k.options, Rules: b.rules}.withHash(s.Created - 1), len(b.rules) > 0
	case port.Protocol.IsTLS():
		if b.addTLS(objects); len(b.rules) == 0 {
			return Part{}, false
		}
	default:
		b.addTCP(objects)
	}
	if port.Number == 0 {
		b.rules = slices.DeleteFunc(b.rules, func(r Rule) bool { return r.Object == api.Key{} })
		if len(b.rules) == 0 {
			return Part{}, false
		}
	}
	part := Part{Host: k.Host, namespace: s.Namespace, options: k.options, Rules: b.rules, Sniffed: port.Protocol.Sniffed(), Port: port.Number}
	part.service, part.foreign = s.OfCluster(), s.Foreign(k.cluster)
	if port.Protocol == mesh.Dubbo && own && s.Dubbo != nil {
		part.Dubbo, part.Calls = s.Dubbo, b.callRules(objects, *s.Dubbo)
	}
	return part.withHash(s.Created), true
}

// portAt returns the port of a service to which connections at an address are. A socket has no port: connections there are to the only port of the
// service. If it has several, the number is 0, and rules of VirtualServices must name the port.
func portAt(s *service.Service, at exposure.Address) (port mesh.Port, ok bool) {
	if !at.IsUnix() {
		return s.Port(at.Port)
	}
	for _, p := range s.Ports {
		if p.Protocol == mesh.UDP {
			continue
		}
		if ok {
			return mesh.Port{}, true
		}
		port, ok = p, true
	}
	return port, ok
}

// builder makes the rules of one port of a service.
type builder struct {
	q       *Queries
	r       *query.Reader
	view    service.HostView
	service *service.Service
	port    mesh.Port
	clients clients
	// gateway is the Gateway whose connections are forwarded, as NAMESPACE/NAME; empty for connections of sidecars.
	gateway string
	// blocks are the address blocks of the service, if connections are recognised by them.
	blocks []string
	// serverNames are the names that distinguish the service from others in TLS. There are none where its address does.
	serverNames []string
	rules       []Rule
}

// addTLS adds the rules for TLS. If none applies to these clients, it adds the service's own name.
func (b *builder) addTLS(objects []*state.VirtualService) {
	b.addTLSRules(objects)
	if names := matchable(b.serverNames); len(b.rules) == 0 && len(names) == len(b.serverNames) {
		b.addDefault(names)
	}
}

// addNarrower adds the TLS rules for a host that a service with a wildcard host covers. Other connections belong to that
// service.
func (b *builder) addNarrower(host string, objects []*state.VirtualService) {
	b.addTLSRules(objects)
	wider := func(name string) bool { return !mesh.Covers(host, name) }
	b.rules = slices.DeleteFunc(b.rules, func(r Rule) bool { return len(r.ServerNames) == 0 || slices.ContainsFunc(r.ServerNames, wider) })
}

// addTLSRules adds the TLS rules that apply.
func (b *builder) addTLSRules(objects []*state.VirtualService) {
	for _, vs := range objects {
		for _, rule := range vs.Spec.Tls {
			for _, m := range rule.Match {
				if !b.applies(m) {
					continue
				}
				names := serverNames(m.SniHosts)
				if usable := matchable(names); len(usable) > 0 || len(names) == 0 {
					b.addRule(Rule{Blocks: b.subnets(m.DestinationSubnets), ServerNames: usable, Object: vs.Object}, rule.Route)
				}
			}
		}
	}
}

// matchable removes each name with a wildcard for a part of a label, such as *-a.example.com. Envoy refuses a listener that matches TLS by
// such a name.
func matchable(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), mesh.IsPartialWildcard)
}

// addTCP adds the TCP rules that apply, up to the first that matches all connections.
func (b *builder) addTCP(objects []*state.VirtualService) {
	for _, vs := range objects {
		for _, rule := range vs.Spec.Tcp {
			var subnets []string
			for _, m := range rule.Match {
				if !b.applies(m) {
					continue
				}
				if len(m.DestinationSubnets) == 0 {
					b.addRule(Rule{Blocks: b.blocks, Object: vs.Object}, rule.Route)
					return
				}
				subnets = append(subnets, m.DestinationSubnets...)
			}
			if len(rule.Match) == 0 {
				b.addRule(Rule{Blocks: b.blocks, Object: vs.Object}, rule.Route)
				return
			}
			if len(subnets) > 0 {
				b.addRule(Rule{Blocks: b.subnets(subnets), Object: vs.Object}, rule.Route)
			}
		}
	}
	b.addDefault(nil)
}

// matchConditions are the conditions of TCP and TLS matches that are decided here, not per connection.
type matchConditions interface {
	GetGateways() []string
	GetPort() uint32
	GetSourceNamespace() string
	GetSourceLabels() map[string]string
}

// applies reports whether these clients on this port can meet the conditions. At gateways, sourceNamespace and sourceLabels have no effect:
// connections come from clients that have neither.
func (b *builder) applies(m matchConditions) bool {
	if g := m.GetGateways(); len(g) > 0 && !slices.Contains(g, cmp.Or(b.gateway, mesh.Gateway)) {
		return false
	}
	if m.GetPort() != 0 && m.GetPort() != b.port.Number {
		return false
	}
	if b.gateway != "" {
		return true
	}
	if m.GetSourceNamespace() != "" && m.GetSourceNamespace() != b.view.Viewer {
		return false
	}
	return mesh.HasAll(b.clients.labels, m.GetSourceLabels())
}

// addDefault adds the rule that sends all other connections to the service itself.
func (b *builder) addDefault(names []string) {
	to := Destination{Host: b.service.Host, Port: b.port.Number, Dynamic: b.service.Resolution == mesh.DynamicDNS}
	b.rules = append(b.rules, Rule{Blocks: b.blocks, ServerNames: names, Destinations: []Destination{to}, Options: b.connectionOptions(to)})
}

func (b *builder) addRule(rule Rule, routes []*networking.RouteDestination) {
	for _, d := range routes {
		if len(routes) > 1 && d.Weight <= 0 {
			continue
		}
		rule.Destinations = append(rule.Destinations, b.destination(d))
	}
	if len(rule.Destinations) == 0 {
		rule.Destinations = []Destination{{}}
	}
	if len(rule.Destinations) > 1 {
		rule.StatPrefix = rule.Object.Name + "." + rule.Object.Namespace
	}
	rule.Options = b.connectionOptions(rule.Destinations[0])
	b.rules = append(b.rules, rule)
}

// destination is where a route leads. It is zero, apart from the weight, if no namespace has such a service or port.
func (b *builder) destination(d *networking.RouteDestination) Destination {
	host := d.GetDestination().GetHost()
	out := Destination{
		Host: host, Subset: d.GetDestination().GetSubset(), Port: d.GetDestination().GetPort().GetNumber(), Weight: uint32(max(d.Weight, 0)),
	}
	s, ok := b.q.scope.DestinationService(b.r, host, b.view.Viewer)
	if !ok {
		alias, port, _ := b.q.services.AliasOf(b.r, host, b.view.Viewer)
		if s, ok = b.q.scope.DestinationService(b.r, alias, b.view.Viewer); !ok {
			return Destination{Weight: out.Weight}
		}
		out.Host, out.Port = alias, cmp.Or(out.Port, port)
	}
	switch {
	case out.Port != 0:
	case len(s.Ports) == 1:
		out.Port = s.Ports[0].Number
	default:
		out.Port = b.port.Number
	}
	if _, ok := s.Port(out.Port); !ok {
		return Destination{Weight: out.Weight}
	}
	out.Dynamic = s.Resolution == mesh.DynamicDNS
	return out
}

// subnets are the address blocks of a match in canonical form, else the address blocks of the service.
func (b *builder) subnets(list []string) []string {
	var out []string
	for _, text := range list {
		if p, ok := subnet(text); ok && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return b.blocks
	}
	return out
}

// subnet parses an address block into its canonical form. A single address is a block of one.
func subnet(text string) (string, bool) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()).String(), true
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked().String(), err == nil
}

// serverNames are the names in lower case, each once. There are none if one of them matches every name.
func serverNames(list []string) []string {
	var out []string
	for _, name := range list {
		name = strings.ToLower(name)
		if name == "*" {
			return nil
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
