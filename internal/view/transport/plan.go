package transport

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// Rule sends the connections that match it somewhere.
type Rule struct {
	// Blocks are the blocks of addresses it is about; none: any address.
	Blocks []string
	// Names are the names TLS clients ask for that it is about, "*.suffix" among them; none: any, and none at all.
	Names []string
	// To are the destinations; those of several have weights.
	To []Destination
	// Stat names it in statistics, if its destination does not.
	Stat string
	// Object is the VirtualService that says so; zero if it is the service's own default.
	Object api.Key
	// Conduct is how connections are carried there, as the policy for the first destination says.
	Conduct Conduct
}

// Destination is where connections go. The zero value is nowhere.
type Destination struct {
	Host, Subset string
	Port, Weight uint32
	// ByName says that the proxy resolves the name the client asks for.
	ByName bool
}

// Plan says whose the connections at an address are.
type Plan struct {
	// HTTP says that what is found to be HTTP is for routes to tell: those of the port, or those of Own alone if it is set.
	HTTP bool
	Own  service.OwnPort
	// Bound says that there is a socket; else connections are redirected.
	Bound bool
	// ByName says that routes may lead to services that the proxy resolves for each request.
	ByName bool
	// Web says that a host declares the port gRPC-Web.
	Web bool
	// Rules are tried by the most specific block of addresses, then by the most specific name.
	Rules []Rule
	// Rest is for what no rule matches; nil if nobody wants it.
	Rest  *Rule
	taken map[match]owner
	// instead is what some hosts want in place of what they want of others.
	instead map[claimed]Part
	// losses are what services wanted that older ones have.
	losses []losing
}

// Loss is what a service wanted and another has.
type Loss struct {
	Winner string
	// Block and Name say of what; both empty: of all connections that nothing else tells apart.
	Block, Name string
}

type losing struct {
	host string
	Loss
}

// match is what Envoy may see once only in a listener.
type match struct{ block, name string }

// Compare orders by block, then name.
func (m match) Compare(o match) int {
	return cmp.Or(strings.Compare(m.block, o.block), strings.Compare(m.name, o.name))
}

// AppendTo appends an unambiguous form.
func (m match) AppendTo(b []byte) []byte {
	return append(append(append(b, m.block...), ' '), m.name...)
}

// matches yields what the rule matches.
func (r Rule) matches() func(yield func(match) bool) {
	return func(yield func(match) bool) {
		for _, block := range orAny(r.Blocks) {
			for _, name := range orAny(r.Names) {
				if !yield(match{block, name}) {
					return
				}
			}
		}
	}
}

// conflicts reports whether it makes a difference which of two rules has a match. Rules of one object are in its own order.
func (r Rule) conflicts(o Rule) bool {
	sameObject := r.Object == o.Object && r.Object != api.Key{}
	return !sameObject && !slices.Equal(r.To, o.To)
}

func (r Rule) has(m match) bool {
	return slices.Contains(orAny(r.Blocks), m.block) && slices.Contains(orAny(r.Names), m.name)
}

type owner struct {
	host string
	Rule
}

// Wanted reports whether anybody wants the address.
func (p *Plan) Wanted() bool { return p.HTTP || p.Rest != nil || len(p.Rules) > 0 }

// Inspects reports whether the name in TLS must be known.
func (p *Plan) Inspects() bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return len(r.Names) > 0 })
}

// add gives a service what is left of what it wants.
func (p *Plan) add(part Part) {
	if own, ok := p.instead[part.claimed()]; ok {
		part = own
	}
	if part.Sniffed && !p.HTTP {
		p.HTTP, p.Own = true, service.OwnPort{Host: part.Host, Port: part.Port}
	}
	for _, rule := range part.Rules {
		p.addRule(part.Host, rule)
	}
}

// addRule adds the blocks and names of a rule that are not taken. Blocks that are left with the same names stay together.
func (p *Plan) addRule(host string, rule Rule) {
	if p.taken == nil {
		p.taken = map[match]owner{}
	}
	names := map[intern.List[string]]int{} // the free names of a block -> the rule for them
	var rules []Rule
	for _, block := range orAny(rule.Blocks) {
		var free []string
		for _, name := range orAny(rule.Names) {
			m := match{block, name}
			if was, ok := p.taken[m]; ok {
				if was.host != host && was.conflicts(rule) {
					p.losses = append(p.losses, losing{host, Loss{was.host, block, name}})
				}
				continue
			}
			p.taken[m] = owner{host, rule}
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
			left.Blocks, left.Names = nil, notAny(free)
			rules = append(rules, left)
		}
		rules[i].Blocks = append(rules[i].Blocks, notAny([]string{block})...)
	}
	for _, r := range rules {
		if len(r.Blocks) == 0 && len(r.Names) == 0 {
			p.Rest = &r
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
