package traffic

import (
	"maps"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// Client has the attributes of a client that may matter to the rules for a host, besides the view. It is zero for
// most clients, because keys hold only attributes that some rule depends on.
type Client struct {
	Site  mesh.Site
	Rules SelectingRules
	// Gateway is true if the client is a gateway. It matters to services with Service.DiffersForGateways.
	Gateway bool
	// Versions are the IP versions of the client's addresses. They matter to services with Service.ResolvesNames, to endpoints behind gateways into
	// networks, and in a dual-stack mesh to all endpoints.
	Versions Versions
	// Cluster is the cluster of the client. It matters to services that are local to each cluster.
	Cluster string
	// Network is the network of the client, if gateways lead into it. It matters to services with endpoints there.
	Network string
	// Networks are the networks whose endpoints the client wants; empty for all.
	Networks intern.List[string]
	// OtherAuthority is true if requests of the client name its workload in a header. It matters to services with mutual TLS of the mesh.
	OtherAuthority bool
}

// Versions are the IP versions of the addresses that a client uses, where most clients use others.
type Versions uint8

// The versions.
const (
	// UsualVersions are both versions in a dual-stack mesh, and else IPv4.
	UsualVersions Versions = iota
	// IPv4Only is the value of a client without addresses of IPv6 in a dual-stack mesh.
	IPv4Only
	// IPv6Only is the value of a client without addresses of IPv4.
	IPv6Only
	// GatewaysOfBoth is the value of a client with addresses of both versions in another mesh: it uses gateways into networks of both.
	GatewaysOfBoth
)

// VersionsOf returns the versions of a client. dualStack says that the mesh is dual-stack.
func VersionsOf(f mesh.Families, dualStack bool) Versions {
	switch {
	case f == mesh.OnlyIPv6:
		return IPv6Only
	case f == mesh.OnlyIPv4 && dualStack:
		return IPv4Only
	case f == mesh.BothFamilies:
		return GatewaysOfBoth
	}
	return UsualVersions
}

// Families returns the versions as families. dualStack says that the mesh is dual-stack.
func (v Versions) Families(dualStack bool) mesh.Families {
	switch {
	case v == IPv6Only:
		return mesh.OnlyIPv6
	case v == GatewaysOfBoth:
		return mesh.BothFamilies
	case v == UsualVersions && dualStack:
		return mesh.DualStack
	}
	return mesh.OnlyIPv4
}

// One reports whether the client uses one version where most clients use both, or the other one.
func (v Versions) One() bool { return v == IPv4Only || v == IPv6Only }

// SelectingRules are the DestinationRules whose workload selector selects a client.
type SelectingRules struct {
	Namespace string
	// Names are the names of the rules, oldest first.
	Names intern.List[string]
}

// each yields the rules that still exist.
func (k SelectingRules) each(r *query.Reader, t *state.Tables, yield func(*state.DestinationRule)) {
	for name := range k.Names.All() {
		key := api.Key{Kind: api.KindDestinationRule, Namespace: k.Namespace, Name: name}
		if rule, ok := t.DestinationRules.Get(r, key); ok {
			yield(rule)
		}
	}
}

// RuleHosts are the hosts and patterns of the rules.
func (q *Queries) RuleHosts(r *query.Reader, k SelectingRules) []string {
	var list []string
	k.each(r, q.tables, func(rule *state.DestinationRule) { list = append(list, rule.Host) })
	return list
}

// RulesForHost returns the rules whose host covers the given host.
func (q *Queries) RulesForHost(r *query.Reader, k SelectingRules, host string) SelectingRules {
	var names []string
	k.each(r, q.tables, func(rule *state.DestinationRule) {
		if mesh.Covers(rule.Host, host) {
			names = append(names, rule.Object.Name)
		}
	})
	if len(names) == 0 {
		return SelectingRules{}
	}
	return SelectingRules{k.Namespace, intern.Of(names...)}
}

// PolicyFor is the policy for a view's service that applies to a client.
func (q *Queries) PolicyFor(r *query.Reader, v service.HostView, rules SelectingRules) *Policy {
	if p := q.selectedPolicy(r, v, rules); p != nil {
		return p
	}
	p, _ := q.Policy.Get(r, v)
	return p
}

// selectedPolicy merges the rules that select a client for the narrowest host that they name. It is nil if there are
// none, or if the namespace has a rule without a selector for a narrower host.
func (q *Queries) selectedPolicy(r *query.Reader, v service.HostView, rules SelectingRules) *Policy {
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
				p, selector = &Policy{audience: rule.Audience, Selected: true}, rule.Selector
				p.add(rule)
			case maps.Equal(rule.Selector, selector):
				p.add(rule)
			}
		})
		if p != nil {
			return p
		}
		for c := range q.tables.ByHost.Group(r, host).All() {
			if c.Kind == claim.Policy && c.Namespace == rules.Namespace {
				return nil
			}
		}
	}
	return nil
}
