package traffic

import (
	"maps"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// Client is what of a client itself, besides its scope, may matter to what holds for a host. It is zero for most: keys
// hold only what is really read.
type Client struct {
	Site  mesh.Site
	Rules Rules
}

// Rules are the DestinationRules that select a client.
type Rules struct {
	Namespace string
	Names     intern.List[string] // oldest first
}

// each yields the rules that there still are.
func (k Rules) each(r *query.Reader, t *state.Tables, yield func(*state.DestinationRule)) {
	for name := range k.Names.All() {
		key := api.Key{Kind: api.KindDestinationRule, Namespace: k.Namespace, Name: name}
		if rule, ok := t.DestinationRules.Get(r, key); ok {
			yield(rule)
		}
	}
}

// Hosts are the hosts and patterns of rules.
func (q *Queries) Hosts(r *query.Reader, k Rules) []string {
	var list []string
	k.each(r, q.tables, func(rule *state.DestinationRule) { list = append(list, rule.Host) })
	return list
}

// Touching are those of the rules whose host covers a host.
func (q *Queries) Touching(r *query.Reader, k Rules, host string) Rules {
	var names []string
	k.each(r, q.tables, func(rule *state.DestinationRule) {
		if mesh.Covers(rule.Host, host) {
			names = append(names, rule.Object.Name)
		}
	})
	if len(names) == 0 {
		return Rules{}
	}
	return Rules{k.Namespace, intern.Of(names...)}
}

// PolicyFor is the policy for a view's service in the eyes of a client.
func (q *Queries) PolicyFor(r *query.Reader, v service.View, rules Rules) *Policy {
	if p := q.selectedPolicy(r, v, rules); p != nil {
		return p
	}
	p, _ := q.Policy.Get(r, v)
	return p
}

// selectedPolicy adds up the rules that select a client, unless its namespace has one without a selector for a narrower
// host.
func (q *Queries) selectedPolicy(r *query.Reader, v service.View, rules Rules) *Policy {
	if rules.Names.Empty() {
		return nil
	}
	for host := range mesh.NarrowestFirst(v.Host) {
		var p *Policy
		var selector map[string]string
		rules.each(r, q.tables, func(rule *state.DestinationRule) {
			switch {
			case rule.Host != host:
			case p == nil:
				p, selector = &Policy{audience: rule.Audience}, rule.Selector
				p.add(rule)
			case maps.Equal(rule.Selector, selector):
				p.add(rule)
			}
		})
		if p != nil {
			return p
		}
		for c := range q.tables.ByHost.Group(r, host).All() {
			if c.Kind == state.PolicyClaim && c.Namespace == rules.Namespace {
				return nil
			}
		}
	}
	return nil
}
