package network

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// found is the result for a name. Names follow Kubernetes' DNS-based service discovery, version 1.1.0.
type found struct {
	addresses []netip.Addr
	targets   []target // of an SRV name
	alias     string   // of an ExternalName service, ends in a dot
	depth     int      // how many aliases led here
	text      string
}

// target is what an SRV record leads to.
type target struct {
	name      string // ends in a dot
	port      uint16
	addresses []netip.Addr
}

// maxAliases bounds chains of ExternalName services, which may be circular.
const maxAliases = 8

// find looks a name up, which ends in a dot and is lower case; nil means that it does not exist.
func (n *Network) find(name string, aliases int) *found {
	zone := "." + dns.Fqdn(n.o.Domain)
	rest, ok := strings.CutSuffix(name, zone)
	if !ok || aliases > maxAliases {
		return nil
	}
	if rest == "dns-version" {
		return &found{text: "1.1.0"}
	}
	parts := strings.Split(rest, ".")
	slices.Reverse(parts) // svc, namespace, service, ...
	switch {
	case parts[0] == "svc" && len(parts) >= 3:
		f := n.findService(parts[1], parts[2], parts[3:])
		if f != nil {
			f.depth = aliases
		}
		return f
	case parts[0] == "pod" && len(parts) == 3:
		return findPod(parts[2])
	case parts[0] == "svc" || parts[0] == "pod":
		return n.findNamespace(parts[1:])
	}
	return nil
}

// findNamespace answers for names that have no records but exist, because there are names below them.
func (n *Network) findNamespace(parts []string) *found {
	if len(parts) == 0 {
		return &found{}
	}
	services, err := n.services.Services(parts[0]).List(labels.Everything())
	if err != nil || len(services) == 0 {
		return nil
	}
	return &found{}
}

// findPod reads the address that a pod's name is made of.
func findPod(label string) *found {
	for _, separator := range []string{".", ":"} {
		if a, err := netip.ParseAddr(strings.ReplaceAll(label, "-", separator)); err == nil {
			return &found{addresses: []netip.Addr{a}}
		}
	}
	return nil
}

// findService answers for a service and the names below it: an endpoint's host name, or _port and _protocol.
func (n *Network) findService(namespace, name string, below []string) *found {
	s := n.service(namespace, name)
	if s == nil {
		return nil
	}
	self := strings.Join([]string{name, namespace, "svc", n.o.Domain}, ".") + "."
	if s.Spec.Type == core.ServiceTypeExternalName {
		if len(below) > 0 {
			return nil
		}
		return &found{alias: dns.Fqdn(s.Spec.ExternalName)}
	}
	headless := s.Spec.ClusterIP == core.ClusterIPNone
	switch {
	case len(below) == 0 && headless:
		return n.headless(s, self)
	case len(below) == 0:
		f := &found{addresses: clusterIPs(s)}
		for _, p := range s.Spec.Ports {
			f.targets = append(f.targets, target{self, uint16(p.Port), f.addresses})
		}
		return f
	case len(below) == 1 && !strings.HasPrefix(below[0], "_") && headless:
		return n.host(s, below[0])
	case len(below) == 1 && strings.HasPrefix(below[0], "_"):
		return &found{} // _tcp alone: there are names below it
	case len(below) == 2:
		return n.port(s, self, below[1], below[0], headless)
	}
	return nil
}

func clusterIPs(s *core.Service) []netip.Addr {
	var all []netip.Addr
	for _, text := range s.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// member is an endpoint of a headless service.
type member struct {
	label   string // its host name or, if it has none, its address with dashes
	address netip.Addr
	ports   map[string]uint16 // by "name/protocol", lower case
}

// members are the endpoints that DNS returns: the ready ones. Slices of services that publish the others call them ready.
func (n *Network) members(s *core.Service) []member {
	var all []member
	for _, slice := range n.endpoints.of(types.NamespacedName{Namespace: s.Namespace, Name: s.Name}) {
		ports := map[string]uint16{}
		for _, p := range slice.Ports {
			if p.Port == nil {
				continue
			}
			name, protocol := "", "tcp"
			if p.Name != nil {
				name = *p.Name
			}
			if p.Protocol != nil {
				protocol = strings.ToLower(string(*p.Protocol))
			}
			ports[name+"/"+protocol] = uint16(*p.Port)
		}
		for _, e := range slice.Endpoints {
			if !usable(e) || len(e.Addresses) == 0 {
				continue
			}
			a, err := netip.ParseAddr(e.Addresses[0])
			if err != nil {
				continue
			}
			m := member{address: a, ports: ports, label: strings.NewReplacer(".", "-", ":", "-").Replace(a.String())}
			if e.Hostname != nil && *e.Hostname != "" {
				m.label = *e.Hostname
			}
			all = append(all, m)
		}
	}
	return all
}

func (n *Network) headless(s *core.Service, self string) *found {
	f := &found{}
	for _, m := range n.members(s) {
		f.addresses = append(f.addresses, m.address)
		for _, port := range m.ports {
			f.targets = append(f.targets, target{m.label + "." + self, port, []netip.Addr{m.address}})
		}
	}
	return f
}

func (n *Network) host(s *core.Service, label string) *found {
	var f *found
	for _, m := range n.members(s) {
		if m.label == label {
			if f == nil {
				f = &found{}
			}
			f.addresses = append(f.addresses, m.address)
		}
	}
	return f
}

// port answers for _name._protocol.
func (n *Network) port(s *core.Service, self, name, protocol string, headless bool) *found {
	name, named := strings.CutPrefix(name, "_")
	protocol, known := strings.CutPrefix(protocol, "_")
	if !named || !known {
		return nil
	}
	f := &found{}
	if headless {
		for _, m := range n.members(s) {
			if port := m.ports[name+"/"+protocol]; port != 0 {
				f.targets = append(f.targets, target{m.label + "." + self, port, []netip.Addr{m.address}})
			}
		}
	} else {
		for _, p := range s.Spec.Ports {
			if p.Name == name && strings.EqualFold(string(p.Protocol), protocol) {
				f.targets = append(f.targets, target{self, uint16(p.Port), clusterIPs(s)})
			}
		}
	}
	if len(f.targets) == 0 {
		return nil
	}
	return f
}

// reverse answers which object has an address: a service, or an endpoint of a headless one that has a host name.
func (n *Network) reverse(name string, q dns.Question) []dns.RR {
	if q.Qtype != dns.TypePTR {
		return nil
	}
	services, err := n.services.List(labels.Everything())
	if err != nil {
		return nil
	}
	var all []dns.RR
	tell := func(a netip.Addr, host string) {
		if reversed, err := dns.ReverseAddr(a.String()); err == nil && reversed == name {
			all = append(all, &dns.PTR{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: ttl}, Ptr: host})
		}
	}
	for _, s := range services {
		self := strings.Join([]string{s.Name, s.Namespace, "svc", n.o.Domain}, ".") + "."
		for _, a := range clusterIPs(s) {
			tell(a, self)
		}
		if s.Spec.ClusterIP == core.ClusterIPNone {
			for _, m := range n.members(s) {
				tell(m.address, m.label+"."+self)
			}
		}
	}
	return all
}
