package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"sigs.k8s.io/knftables"
)

// ruleset is the part of the table that follows the cluster, in a form that can be compared.
type ruleset struct {
	// chains are the chains that choose an endpoint, by name.
	chains map[string]choice
	// sets are the elements of sets and maps, by the name of the set. The value is the chain that an element of a map leads to;
	// it is empty for an element of a set.
	sets map[string]map[element]string
}

// element is the key of an element of a set or map. Parts that the set does not have are empty.
type element [3]string

func (e element) compare(o element) int { return slices.Compare(e[:], o[:]) }

// in returns the element as a part of a set, or of a map if it leads to a chain.
func (e element) in(set, target string) *knftables.Element {
	key := slices.DeleteFunc(slices.Clone(e[:]), func(part string) bool { return part == "" })
	if target == "" {
		return &knftables.Element{Set: set, Key: key}
	}
	return &knftables.Element{Map: set, Key: key, Value: []string{"goto " + target}}
}

// choice sends a new connection to one of the targets. protocol is "tcp", "udp" or "sctp", family "ip" or "ip6".
type choice struct {
	protocol, family string
	targets          []netip.AddrPort
}

func (c choice) equal(o choice) bool {
	return c.protocol == o.protocol && c.family == o.family && slices.Equal(c.targets, o.targets)
}

// rule is the choice as a rule of nftables.
func (c choice) rule() string {
	if len(c.targets) == 1 {
		return fmt.Sprintf("meta l4proto %s dnat %s to %s", c.protocol, c.family, c.targets[0])
	}
	all := make([]string, len(c.targets))
	for i, t := range c.targets {
		all[i] = fmt.Sprintf("%d : %s . %d", i, t.Addr(), t.Port())
	}
	return fmt.Sprintf("meta l4proto %s dnat %s addr . port to numgen random mod %d map { %s }", c.protocol, c.family, len(c.targets), strings.Join(all, ", "))
}

// The sets and maps whose elements follow the cluster; the skeleton declares them.
const (
	services4 = "services4"
	services6 = "services6"
	ports4    = "nodeports4"
	ports6    = "nodeports6"
	loops4    = "loops4" // endpoints that may reach themselves through a service
	loops6    = "loops6"
)

func newRuleset() *ruleset {
	r := &ruleset{chains: map[string]choice{}, sets: map[string]map[element]string{}}
	for _, s := range []string{services4, services6, ports4, ports6, loops4, loops6} {
		r.sets[s] = map[element]string{}
	}
	return r
}

// add translates one service. It translates no port without endpoints: the skeleton refuses the remaining packets.
func (r *ruleset) add(s *core.Service, endpoints []*discovery.EndpointSlice) {
	if s.Spec.Type == core.ServiceTypeExternalName || s.Spec.ClusterIP == core.ClusterIPNone {
		return
	}
	for _, p := range s.Spec.Ports {
		targets := reachable(endpoints, p)
		r.port(s, p, targets, false)
		r.port(s, p, targets, true)
	}
}

// port makes one chain that chooses an endpoint of one family, and leads the port's addresses of that family there.
func (r *ruleset) port(s *core.Service, p core.ServicePort, targets []netip.AddrPort, six bool) {
	targets = slices.DeleteFunc(slices.Clone(targets), func(a netip.AddrPort) bool { return a.Addr().Is6() != six })
	if len(targets) == 0 {
		return
	}
	protocol := strings.ToLower(string(cmp.Or(p.Protocol, core.ProtocolTCP)))
	services, nodePorts, loops, family := services4, ports4, loops4, "ip"
	if six {
		services, nodePorts, loops, family = services6, ports6, loops6, "ip6"
	}
	chain := fmt.Sprintf("s/%s/%s/%s/%d/%s", s.Namespace, s.Name, protocol, p.Port, family)
	r.chains[chain] = choice{protocol, family, targets}
	port := fmt.Sprint(p.Port)
	for _, a := range addresses(s) {
		if a.Is6() == six {
			r.sets[services][element{a.String(), protocol, port}] = chain
		}
	}
	if p.NodePort != 0 {
		r.sets[nodePorts][element{protocol, fmt.Sprint(p.NodePort)}] = chain
	}
	for _, t := range targets {
		r.sets[loops][element{t.Addr().String(), t.Addr().String()}] = ""
	}
}

// addresses are all at which a service is found.
func addresses(s *core.Service) []netip.Addr {
	texts := slices.Concat(s.Spec.ClusterIPs, s.Spec.ExternalIPs)
	if len(s.Spec.ClusterIPs) == 0 {
		texts = append(texts, s.Spec.ClusterIP)
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		texts = append(texts, i.IP)
	}
	var all []netip.Addr
	for _, t := range texts {
		if a, err := netip.ParseAddr(t); err == nil && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// reachable are the endpoints that serve a port: the ready endpoints or, where none is ready, the terminating endpoints that still serve, as
// kube-proxy has it.
func reachable(endpoints []*discovery.EndpointSlice, p core.ServicePort) []netip.AddrPort {
	if ready := serving(endpoints, p, usable); len(ready) > 0 {
		return ready
	}
	return serving(endpoints, p, lastResort)
}

func serving(endpoints []*discovery.EndpointSlice, p core.ServicePort, want func(discovery.Endpoint) bool) []netip.AddrPort {
	var all []netip.AddrPort
	for _, s := range endpoints {
		port := portOf(s, p)
		if port == 0 {
			continue
		}
		for _, e := range s.Endpoints {
			if !want(e) || len(e.Addresses) == 0 {
				continue
			}
			// The other addresses of an endpoint are no alternatives; the API says to use the first.
			if a, err := netip.ParseAddr(e.Addresses[0]); err == nil {
				all = append(all, netip.AddrPortFrom(a, port))
			}
		}
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}

// portOf finds a service's port in a slice, by its name; 0 if it is not there.
func portOf(s *discovery.EndpointSlice, p core.ServicePort) uint16 {
	for _, q := range s.Ports {
		name, protocol := "", core.ProtocolTCP
		if q.Name != nil {
			name = *q.Name
		}
		if q.Protocol != nil {
			protocol = *q.Protocol
		}
		if name == p.Name && protocol == cmp.Or(p.Protocol, core.ProtocolTCP) && q.Port != nil {
			return uint16(*q.Port)
		}
	}
	return 0
}
