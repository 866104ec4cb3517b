package transport

import (
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// wants is what a host wants of an address.
func (q *Queries) wants(r *query.Reader, k claim) (Part, bool) {
	if k.Host == "" {
		return Part{}, false
	}
	s, own := q.services.Service.Get(r, k.View)
	if !own {
		wider, ok := q.services.Covering(r, k.View)
		if !ok {
			return Part{}, false
		}
		s = wider
	}
	port, ok := s.Port(k.at.Port)
	if !ok {
		return Part{}, false
	}
	if k.terms.As != mesh.Auto {
		port.Protocol = k.terms.As
	}
	b := &builder{q: q, r: r, view: k.View, service: s, port: port, of: k.of}
	if k.at.IP == "" && !k.direct {
		b.blocks = s.Blocks()
	}
	if k.at.IP == "" || k.terms.Given {
		b.names = []string{s.Host}
	}
	objects, _ := q.traffic.Routes.Get(r, k.View)
	switch {
	case !own:
		b.narrower(k.Host, objects)
		return Part{Host: k.Host, terms: k.terms, Rules: b.rules}.sealed(s.Created - 1), len(b.rules) > 0
	case port.Protocol.IsTLS():
		b.tls(objects)
	default:
		b.tcp(objects)
	}
	return Part{Host: k.Host, terms: k.terms, Rules: b.rules, Sniffed: port.Protocol.Sniffed(), Port: port.Number}.sealed(s.Created), true
}

// builder makes the rules of one service's port.
type builder struct {
	q       *Queries
	r       *query.Reader
	view    service.View
	service *service.Service
	port    mesh.Port
	of      callers
	blocks  []string // of the service, where they tell it from others
	names   []string // that tell the service from others in TLS; none where its address does
	rules   []Rule
}

// tls adds the rules for TLS. If there are none for these callers, the service's own name is one.
func (b *builder) tls(objects []*state.VirtualService) {
	if b.passing(objects); len(b.rules) == 0 {
		b.byDefault(b.names)
	}
}

// narrower adds the rules for TLS for a host that a service with a wider name covers: what they do not match is that one's.
func (b *builder) narrower(host string, objects []*state.VirtualService) {
	b.passing(objects)
	wider := func(name string) bool { return !mesh.Covers(host, name) }
	b.rules = slices.DeleteFunc(b.rules, func(r Rule) bool { return len(r.Names) == 0 || slices.ContainsFunc(r.Names, wider) })
}

// passing adds the rules for TLS that passes through.
func (b *builder) passing(objects []*state.VirtualService) {
	for _, vs := range objects {
		for _, rule := range vs.Spec.Tls {
			for _, m := range rule.Match {
				if !b.applies(m) {
					continue
				}
				b.add(Rule{Blocks: b.subnets(m.DestinationSubnets), Names: serverNames(m.SniHosts), Object: vs.Object}, rule.Route)
			}
		}
	}
}

// tcp adds the rules for connections, up to the first that takes all of them.
func (b *builder) tcp(objects []*state.VirtualService) {
	for _, vs := range objects {
		for _, rule := range vs.Spec.Tcp {
			var subnets []string
			for _, m := range rule.Match {
				if !b.applies(m) {
					continue
				}
				if len(m.DestinationSubnets) == 0 {
					b.add(Rule{Blocks: b.blocks, Object: vs.Object}, rule.Route)
					return
				}
				subnets = append(subnets, m.DestinationSubnets...)
			}
			if len(rule.Match) == 0 {
				b.add(Rule{Blocks: b.blocks, Object: vs.Object}, rule.Route)
				return
			}
			if len(subnets) > 0 {
				b.add(Rule{Blocks: b.subnets(subnets), Object: vs.Object}, rule.Route)
			}
		}
	}
	b.byDefault(nil)
}

// conditions are what TCP and TLS matches have in common of what is decided here, not per connection.
type conditions interface {
	GetGateways() []string
	GetPort() uint32
	GetSourceNamespace() string
	GetSourceLabels() map[string]string
}

// applies reports whether a match can be met by these callers on this port.
func (b *builder) applies(m conditions) bool {
	if g := m.GetGateways(); len(g) > 0 && !slices.Contains(g, mesh.Gateway) {
		return false
	}
	if m.GetPort() != 0 && m.GetPort() != b.port.Number {
		return false
	}
	if m.GetSourceNamespace() != "" && m.GetSourceNamespace() != b.view.Layer {
		return false
	}
	return mesh.HasAll(b.of.labels, m.GetSourceLabels())
}

// byDefault sends everything else to the service itself.
func (b *builder) byDefault(names []string) {
	to := Destination{Host: b.service.Host, Port: b.port.Number, ByName: b.service.Resolution == mesh.DynamicDNS}
	b.rules = append(b.rules, Rule{Blocks: b.blocks, Names: names, To: []Destination{to}, Conduct: b.conduct(to)})
}

func (b *builder) add(rule Rule, routes []*networking.RouteDestination) {
	for _, d := range routes {
		if len(routes) > 1 && d.Weight <= 0 {
			continue
		}
		rule.To = append(rule.To, b.destination(d))
	}
	if len(rule.To) == 0 {
		rule.To = []Destination{{}}
	}
	if len(rule.To) > 1 {
		rule.Stat = rule.Object.Name + "." + rule.Object.Namespace
	}
	rule.Conduct = b.conduct(rule.To[0])
	b.rules = append(b.rules, rule)
}

// destination is where a route leads; nowhere, if there is no such service for anybody.
func (b *builder) destination(d *networking.RouteDestination) Destination {
	host := d.GetDestination().GetHost()
	out := Destination{
		Host: host, Subset: d.GetDestination().GetSubset(), Port: d.GetDestination().GetPort().GetNumber(), Weight: uint32(max(d.Weight, 0)),
	}
	s, ok := b.q.scope.Destination(b.r, host, b.view.Layer)
	if !ok {
		return Destination{Weight: out.Weight}
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
	out.ByName = s.Resolution == mesh.DynamicDNS
	return out
}

// subnets are the blocks of a match in one spelling, else the service's own.
func (b *builder) subnets(list []string) []string {
	var out []string
	for _, text := range list {
		if p, ok := Subnet(text); ok && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return b.blocks
	}
	return out
}

// Subnet is a block of addresses in one spelling; a single address is a block of one.
func Subnet(text string) (string, bool) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()).String(), true
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked().String(), err == nil
}

// serverNames are the names in one spelling; none if they cover every name.
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
