// Package authz translates AuthorizationPolicies and RequestAuthentications into filters of Envoy for the inbound side of a workload.
//
// It owns the filters and their order: the filters of CUSTOM policies ask an external authorizer, then tokens are verified, then come
// the policies AUDIT, DENY and ALLOW. Which policies apply to a workload is decided by package policy.
//
// Invariants: what cannot be translated exactly denies. Every query here is a Guard: if it panics, the workloads concerned deny
// everything. The package starts no goroutines.
package authz

import (
	"fmt"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/policy"
	"github.com/pilotmesh/pilot/internal/view/scope"
)

// Key names the filters of some workloads: by the policies that apply to them and, if these refer to services, by the hosts that the
// workloads see.
type Key struct {
	Policies policy.Set
	Hosts    scope.Set
	// Gateway is true for gateways, where routes may depend on claims of tokens: after these are verified, the route is chosen again.
	Gateway bool
}

// Filters are what comes first on the inbound side of a workload: for HTTP, and for other connections.
type Filters struct {
	HTTP []*hcmv3.HttpFilter
	TCP  []*listenerv3.Filter
	// tokens and policies are where in HTTP the filters begin that verify tokens, and the policies that decide here. tcpPolicies is the
	// same in TCP.
	tokens, policies, tcpPolicies int
}

// Parts returns the filters for HTTP in their order: external authorizers, the verification of tokens, and the policies that decide here.
func (f Filters) Parts() (custom, tokens, policies []*hcmv3.HttpFilter) {
	return f.HTTP[:f.tokens], f.HTTP[f.tokens:f.policies], f.HTTP[f.policies:]
}

// TCPParts returns the filters for other connections in their order: external authorizers, and the policies that decide here.
func (f Filters) TCPParts() (custom, policies []*listenerv3.Filter) {
	return f.TCP[:f.tcpPolicies], f.TCP[f.tcpPolicies:]
}

func (f Filters) equal(o Filters) bool {
	return f.tokens == o.tokens && f.policies == o.policies && f.tcpPolicies == o.tcpPolicies &&
		slices.EqualFunc(f.HTTP, o.HTTP, func(a, b *hcmv3.HttpFilter) bool { return proto.Equal(a, b) }) &&
		slices.EqualFunc(f.TCP, o.TCP, func(a, b *listenerv3.Filter) bool { return proto.Equal(a, b) })
}

// Queries are the filters of workloads.
type Queries struct {
	tables *state.Tables
	scope  *scope.Queries
	// rules are the translated AuthorizationPolicies of a set, and tokens its translated RequestAuthentications.
	rules  query.Collection[policy.Set, *rules]
	tokens query.Collection[policy.Set, *tokens]
	// filters are the filters of workloads.
	filters query.Query[Key, Filters]
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, sc *scope.Queries) *Queries {
	q := &Queries{tables: t, scope: sc}
	members := func(kind string) func(r *query.Reader, s policy.Set) policy.Keys {
		return func(r *query.Reader, s policy.Set) policy.Keys { return s.Members(t, r, kind) }
	}
	self := func(_ policy.Set, k api.Key) api.Key { return k }
	sameRules := func(a, b []*rules) bool { return slices.EqualFunc(a, b, sameContent[*rules]) }
	sameTokens := func(a, b []*tokens) bool { return slices.EqualFunc(a, b, sameContent[*tokens]) }
	q.rules = query.Each(g, "policyRules", members(api.KindAuthorizationPolicy),
		query.Guard(g, "policyRule", sameRules, []*rules{{broken: true}}, q.translate), self)
	q.tokens = query.Each(g, "tokenRules", members(api.KindRequestAuthentication),
		query.Guard(g, "tokenRule", sameTokens, []*tokens{{broken: true}}, q.translateTokens), self)
	q.filters = query.Guard(g, "inboundFilters", Filters.equal, denyAll(becauseOfBug), q.build)
	return q
}

func sameContent[V omap.Value](a, b V) bool { return a.ContentHash() == b.ContentHash() }

// KeyOf returns the key of a class.
func (q *Queries) KeyOf(r *query.Reader, c proxy.Class) Key {
	k := Key{Policies: policy.SetOf(q.tables, r, c), Gateway: c.Gateway}
	if policy.RefersToServices(q.tables, r, k.Policies) {
		k.Hosts = scope.SetOf(c).WithoutNames()
	}
	return k
}

// Filters returns the filters of workloads.
func (q *Queries) Filters(r *query.Reader, k Key) Filters {
	f, _ := q.filters.Get(r, k)
	return f
}

// rules is a translated AuthorizationPolicy.
type rules struct {
	key      api.Key
	action   security.AuthorizationPolicy_Action
	dryRun   bool
	provider string
	// http and tcp are the policies of Envoy by the position of the rule.
	http, tcp map[int]*rbacv3.Policy
	// broken is true if the translation failed because of a bug.
	broken bool
	hash   omap.Hash
}

// OutputName implements query.Output.
func (p *rules) OutputName() string { return p.key.String() }

// ContentHash implements omap.Value.
func (p *rules) ContentHash() omap.Hash { return p.hash }

// Size implements omap.Value.
func (p *rules) Size() int { return 0 }

// translate is the translation of one AuthorizationPolicy.
func (q *Queries) translate(r *query.Reader, k api.Key) ([]*rules, bool) {
	row, ok := q.tables.Security.Authorizations.Get(r, k)
	if !ok {
		return nil, false
	}
	domains := q.tables.TrustDomains(r)
	p := &rules{key: k, action: row.Spec.GetAction(), dryRun: row.DryRun, provider: row.Spec.GetProvider().GetName()}
	p.http, p.tcp = translate(row, domains)
	p.hash = omap.Sum(row.Hash[:], []byte(fmt.Sprintf("%q", domains)))
	return []*rules{p}, true
}

// build makes the filters.
func (q *Queries) build(r *query.Reader, k Key) (Filters, bool) {
	var of actions
	for _, p := range q.rules.Get(r, k.Policies).All() {
		of.add(p)
	}
	if of.broken {
		return denyAll(becauseOfBug), true
	}
	f := q.custom(r, k, of.custom)
	f.tokens, f.tcpPolicies = len(f.HTTP), len(f.TCP)
	f.HTTP = append(f.HTTP, q.tokenFilters(r, k)...)
	f.policies = len(f.HTTP)
	for _, a := range []*enforced{&of.audit, &of.deny, &of.allow} {
		f.HTTP = append(f.HTTP, a.http()...)
		f.TCP = append(f.TCP, a.tcp()...)
	}
	return f, true
}
