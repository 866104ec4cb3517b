package transport

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
)

// Rule sends connections that match it to destinations.
type Rule struct {
	// Blocks are the address blocks (CIDR) that it matches. If there are none, it matches any address.
	Blocks []string
	// ServerNames are the SNI values that it matches, in which "*.suffix" is a wildcard. If there are none, it matches
	// any connection.
	ServerNames []string
	// Destinations are where the connections go. If there are several, each has a weight.
	Destinations []Destination
	// StatPrefix is the name in statistics if there are several destinations.
	StatPrefix string
	// Object is the VirtualService that has the rule. It is zero for the default rule of a service.
	Object api.Key
	// Options say how the connections are forwarded. They come from the policy for the first destination.
	Options ConnectionOptions
}

// Destination is where connections go. The zero value means that they are closed.
type Destination struct {
	Host, Subset string
	Port, Weight uint32
	// Dynamic says that the proxy resolves the name that the client asks for.
	Dynamic bool
}

// Plan is the handling of the connections at an address.
type Plan struct {
	// HTTP says that connections recognised as HTTP go to a route configuration: the one of the port, or of
	// DedicatedPort if it is set.
	HTTP          bool
	DedicatedPort exposure.HostPort
	// Also are further addresses whose connections are handled by the same listener, of a service with addresses of both IP versions.
	Also []string
	// Bound says that the listener has a socket. Otherwise connections are redirected to it.
	Bound bool
	// DynamicHTTP says that routes may lead to services that the proxy resolves for each request.
	DynamicHTTP bool
	// GRPCWeb says that some HTTP host declares the port gRPC-Web.
	GRPCWeb bool
	// Rules are matched as Envoy does it: by the most specific address block, then by the most specific server name.
	Rules []Rule
	// Held are the addresses of Services with HTTP that lie in blocks of the rules, as blocks of one address. HTTP there is for the route
	// configuration, as if no rule had the block.
	Held []string
	// DefaultRule is for connections that no rule matches. It is nil if no service asks for them.
	DefaultRule *Rule
	// dubbo are the calls of Dubbo to all hosts at the address, and others is true if some host has another protocol there.
	dubbo  []DubboCall
	others bool
	// owners maps each match to the host and rule that have it.
	owners map[match]owner
	// replacements are the parts that replace other parts of the same candidates.
	replacements map[partID]Part
	// conflicts are the matches that hosts asked for and other hosts have.
	conflicts []hostConflict
}

// DubboCall is the calls of an interface of Dubbo, and where they go: by the first rule that matches.
type DubboCall struct {
	mesh.DubboInterface
	Rules []CallRule
}

// Dubbo returns where calls of Dubbo go, if all connections at the address are of Dubbo. One listener has the interfaces of all hosts: it
// cannot distinguish other protocols.
func (p *Plan) Dubbo() []DubboCall {
	if p.HTTP || p.others || p.DefaultRule == nil {
		return nil
	}
	return p.dubbo
}

// Conflict is a match that a host asked for and another host has: an older host, or the host of a Service of a Kubernetes cluster.
type Conflict struct {
	Winner string
	// Service says that the winner is such a Service.
	Service bool
	// Block and Name are the match. If both are empty, it is all connections that no other rule matches.
	Block, Name string
}

type hostConflict struct {
	host string
	Conflict
}

// match is one combination of a filter chain match. Envoy accepts each only once per listener.
type match struct{ block, name string }

// Compare orders by block, then by name.
func (m match) Compare(o match) int {
	return cmp.Or(strings.Compare(m.block, o.block), strings.Compare(m.name, o.name))
}

// AppendTo appends an unambiguous encoding.
func (m match) AppendTo(b []byte) []byte {
	return append(append(append(b, m.block...), ' '), m.name...)
}

// matches yields the matches of the rule.
func (r Rule) matches() func(yield func(match) bool) {
	return func(yield func(match) bool) {
		for _, block := range orAny(r.Blocks) {
			for _, name := range orAny(r.ServerNames) {
				if !yield(match{block, name}) {
					return
				}
			}
		}
	}
}

// differsFrom reports whether it matters which of two rules gets a match. Rules of one object are in the order of the
// object, so they do not conflict.
func (r Rule) differsFrom(o Rule) bool {
	sameObject := r.Object == o.Object && r.Object != api.Key{}
	return !sameObject && !slices.Equal(r.Destinations, o.Destinations)
}

func (r Rule) hasMatch(m match) bool {
	return slices.Contains(orAny(r.Blocks), m.block) && slices.Contains(orAny(r.ServerNames), m.name)
}

// owner is the host and the rule that have a match. service says that a Service of a Kubernetes cluster has the host.
type owner struct {
	host    string
	service bool
	Rule
}

// InUse reports whether any service asks for the address.
func (p *Plan) InUse() bool { return p.HTTP || p.DefaultRule != nil || len(p.Rules) > 0 }

// NeedsTLSInspector reports whether some rule matches by server name.
func (p *Plan) NeedsTLSInspector() bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return len(r.ServerNames) > 0 })
}

// add adds a part, without the matches that hosts before it have.
func (p *Plan) add(part Part) {
	if own, ok := p.replacements[part.id()]; ok {
		part = own
	}
	if part.Sniffed && !p.HTTP {
		p.HTTP, p.DedicatedPort = true, exposure.HostPort{Host: part.Host, Port: part.Port}
	}
	p.others = p.others || part.Dubbo == nil
	for _, rule := range part.Rules {
		if part.Dubbo != nil && len(rule.Blocks) == 0 && len(rule.ServerNames) == 0 {
			p.dubbo = append(p.dubbo, DubboCall{*part.Dubbo, append(slices.Clip(part.Calls), CallRule{Destinations: rule.Destinations})})
		}
		p.addRule(part, rule)
	}
}

// addRule adds the matches of a rule that are still free. Blocks that are left with the same names stay in one rule.
func (p *Plan) addRule(part Part, rule Rule) {
	if p.owners == nil {
		p.owners = map[match]owner{}
	}
	names := map[intern.List[string]]int{} // the free names of a block -> the index of their rule
	var rules []Rule
	for _, block := range orAny(rule.Blocks) {
		var free []string
		for _, name := range orAny(rule.ServerNames) {
			m := match{block, name}
			if was, ok := p.owners[m]; ok {
				if was.host != part.Host && was.differsFrom(rule) {
					p.conflicts = append(p.conflicts, hostConflict{part.Host, Conflict{was.host, was.service, block, name}})
				}
				continue
			}
			p.owners[m] = owner{part.Host, part.service, rule}
			free = append(free, name)
		}
		if len(free) == 0 {
			continue
		}
		key := intern.Of(free...)
		i, ok := names[key]
		if !ok {
			i = len(rules)
			names[key] = i
			left := rule
			left.Blocks, left.ServerNames = nil, notAny(free)
			rules = append(rules, left)
		}
		rules[i].Blocks = append(rules[i].Blocks, notAny([]string{block})...)
	}
	for _, r := range rules {
		if len(r.Blocks) == 0 && len(r.ServerNames) == 0 {
			p.DefaultRule = &r
			continue
		}
		p.Rules = append(p.Rules, r)
	}
}

func orAny(list []string) []string {
	if len(list) == 0 {
		return []string{""}
	}
	return list
}

func notAny(list []string) []string {
	if len(list) == 1 && list[0] == "" {
		return nil
	}
	return list
}
