package transport

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
)

// maxHeld bounds how many addresses of Services are kept out of one block. A block with more is not matched at all.
const maxHeld = 500

// place is an address as some clients reach it. Without a set it is the address in the base view.
type place struct {
	at       exposure.Address
	families mesh.Families
	cluster  string
	set      *scope.Set
}

// addParts adds the parts of hosts with the same address: first hosts of Services of Kubernetes clusters, then the others, in order. An address of
// a Service in another cluster gives way to the same address of one in this cluster. ServiceEntries outside the
// namespace of the Service get nothing.
func (q *Queries) addParts(r *query.Reader, p *Plan, parts []Part, at place) {
	slices.SortStableFunc(parts, servicesFirst)
	var holder Part
	if len(parts) > 0 && parts[0].service {
		holder = parts[0]
	} else if slices.ContainsFunc(parts, func(part Part) bool { return !part.options.FromSidecar }) {
		holder = q.httpHolder(r, at)
	}
	for _, part := range parts {
		if holder.Host != "" && !part.service && part.namespace != holder.namespace && !part.options.FromSidecar {
			p.conflicts = append(p.conflicts, hostConflict{part.Host, Conflict{Winner: holder.Host, Service: true}})
			continue
		}
		p.add(part)
	}
}

// servicesFirst orders parts by the object that declares the host: a Service of the cluster of the clients, one of another cluster, a ServiceEntry.
func servicesFirst(a, b Part) int {
	rank := func(p Part) int {
		switch {
		case !p.service:
			return 2
		case p.foreign:
			return 1
		}
		return 0
	}
	return cmp.Compare(rank(a), rank(b))
}

// httpHolder is the Service that has an address for HTTP. It asks for no connections there, because HTTP is recognised at any address.
func (q *Queries) httpHolder(r *query.Reader, k place) Part {
	at := exposure.Domain{Name: k.at.IP, Port: k.at.Port}
	hidden := map[string]bool{}
	if k.set != nil {
		for c := range q.scope.Index.Domains.Group(r, *k.set, at).All() {
			if c.Created == exposure.OnlyInBase {
				hidden[c.Host] = true
				continue
			}
			if h, ok := q.holds(r, c, q.scope.View(r, scope.HostInSet{Host: c.Host, Set: *k.set}), k); ok {
				return h
			}
		}
		if !k.set.Overlay() {
			return Part{}
		}
	}
	for c := range q.services.Index.Domains.Group(r, service.All{}, at).All() {
		if h, ok := q.holds(r, c, service.HostView{Host: c.Host}, k); ok && !hidden[c.Host] {
			return h
		}
	}
	return Part{}
}

// holds reports whether a candidate for an address is a Service that the clients reach there.
func (q *Queries) holds(r *query.Reader, c exposure.Candidate, v service.HostView, k place) (Part, bool) {
	if !c.IsService() {
		return Part{}, false
	}
	s, ok := q.services.Service.Get(r, v)
	if !ok || !s.OfCluster() || !s.ListensAt(k.at.IP, k.families, k.cluster) {
		return Part{}, false
	}
	return Part{Host: c.Host, namespace: s.Namespace, service: true}, true
}

// heldKey is a block of addresses, and a port.
type heldKey struct {
	block string
	port  uint32
}

// heldAddresses are the addresses in a block at which Services have a port for HTTP.
type heldAddresses struct {
	list []kube.ServiceAddress
	// tooMany is true if the list is not complete.
	tooMany bool
}

func (h heldAddresses) equal(o heldAddresses) bool {
	return h.tooMany == o.tooMany && slices.Equal(h.list, o.list)
}

func (q *Queries) heldIn(r *query.Reader, k heldKey) (h heldAddresses, ok bool) {
	block, err := netip.ParsePrefix(k.block)
	if err != nil {
		return h, false
	}
	for a := range omap.From(q.tables.Kube.HTTPAddresses.Group(r, k.port), kube.ServiceAddress{Addr: block.Addr()}) {
		if !block.Contains(a.Addr) {
			break
		}
		if len(h.list) == maxHeld {
			h.tooMany = true
			break
		}
		h.list = append(h.list, a)
	}
	return h, len(h.list) > 0
}

// keepHeld takes the addresses of Services out of the blocks of a plan, so that HTTP there remains with the Services.
func (q *Queries) keepHeld(r *query.Reader, p *Plan, port uint32) {
	if !p.HTTP {
		return
	}
	var rules []Rule
	for _, rule := range p.Rules {
		if len(rule.Blocks) > 0 {
			rule.Blocks = slices.DeleteFunc(slices.Clone(rule.Blocks), func(block string) bool {
				h, _ := q.held.Get(r, heldKey{block, port})
				if h.tooMany {
					return true
				}
				for _, a := range h.list {
					p.Held = append(p.Held, netip.PrefixFrom(a.Addr, a.BitLen()).String())
				}
				return false
			})
			if len(rule.Blocks) == 0 {
				continue
			}
		}
		rules = append(rules, rule)
	}
	slices.Sort(p.Held)
	p.Rules, p.Held = rules, slices.Compact(p.Held)
}

// ServiceConflicts are the connections that a host asks for at an address and that belong to Services which all clients see. Block is set in
// each.
func (q *Queries) ServiceConflicts(r *query.Reader, v service.HostView, at exposure.Address) (list []Conflict) {
	if at.IP != "" {
		for c := range q.services.Index.Redirected.Group(r, service.All{}, at).All() {
			if c.IsService() {
				return []Conflict{{Winner: c.Host, Service: true, Block: at.IP}}
			}
		}
		if h := q.httpHolder(r, place{at: at}); h.Host != "" {
			list = []Conflict{{Winner: h.Host, Service: true, Block: at.IP}}
		}
		return list
	}
	own, _ := q.part.Get(r, partKey{HostView: v, at: at})
	for _, p := range own {
		for _, rule := range p.Rules {
			list = append(list, q.heldConflicts(r, v.Host, rule, at.Port)...)
		}
	}
	return list
}

// heldConflicts are the addresses in the blocks of a rule of a host that Services have for HTTP.
func (q *Queries) heldConflicts(r *query.Reader, host string, rule Rule, port uint32) (list []Conflict) {
	for _, block := range rule.Blocks {
		h, _ := q.held.Get(r, heldKey{block, port})
		for i, a := range h.list {
			at := netip.PrefixFrom(a.Addr, a.BitLen()).String()
			if h.tooMany {
				at = block
			}
			if winner := q.tables.ServiceHost(api.Key{Kind: kube.KindService, Namespace: a.Namespace, Name: a.Name, Cluster: a.Cluster}); winner != host {
				list = append(list, Conflict{Winner: winner, Service: true, Block: at})
			}
			if i == maxConflicts || h.tooMany {
				break
			}
		}
	}
	return list
}
