package traffic

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// Policy is the merged DestinationRules for a service.
type Policy struct {
	// Objects are the rules that were merged, oldest first. There is at least one.
	Objects []api.Key
	// Top is the policy of the service as a whole; nil if no rule has one.
	Top *networking.TrafficPolicy
	// Subsets are in the order of declaration, each name once.
	Subsets []*networking.Subset
	// Selected is true if the rules are for the workloads that they select only. Secrets that they name then count for sidecars.
	Selected bool
	// Credential is true if a rule names a Secret that gateways use.
	Credential bool

	// audience are the namespaces that the rules are exported to.
	audience intern.List[string]
	// hashes are the hashes of the objects. Policies are compared by them instead of by content.
	hashes []omap.Hash
}

// Equal reports whether two policies were merged from the same rules.
func (p *Policy) Equal(o *Policy) bool {
	return p.Selected == o.Selected && slices.Equal(p.Objects, o.Objects) && slices.Equal(p.hashes, o.hashes)
}

// policy looks for rules in the client's namespace, then in the service's namespace, then in the root namespace. The
// first namespace with a rule for the host decides alone. Within it, the rules for the narrowest host count.
func (q *Queries) policy(r *query.Reader, v service.HostView) (*Policy, bool) {
	claims := make([]omap.Map[claim.Claim, omap.Unit], 0, 8)
	any := false
	for host := range mesh.NarrowestFirst(v.Host) {
		m := q.tables.ByHost.Group(r, host)
		claims = append(claims, m)
		for c := range m.All() {
			any = any || c.Kind == claim.Policy && c.VisibleTo(v.Viewer)
		}
	}
	if !any {
		return nil, false
	}
	root := q.tables.RootNamespace(r)
	places := []lookupStep{{root, false}}
	if home := v.DeclaringNamespace(claims[0]); home != "" && home != root {
		places = []lookupStep{{home, false}, {root, false}}
	}
	// The root namespace is a client namespace, too. Rules that it exports to all must not come before the rules of
	// the service's own namespace, for every client.
	if v.Viewer != "" {
		places = slices.Insert(places, 0, lookupStep{v.Viewer, v.Viewer == root})
	}
	for _, in := range places {
		for _, m := range claims {
			if p := q.merge(r, m, v.Viewer, in); p != nil {
				return p, true
			}
		}
	}
	return nil, false
}

// lookupStep is a namespace in which rules are looked for.
type lookupStep struct {
	namespace string
	// private restricts the step to rules that no other namespace sees.
	private bool
}

// merge merges the rules of one step for one host or pattern: the oldest top-level policy counts, and the subsets of all.
// Rules that are exported to different namespaces are not merged; among several such sets, the youngest counts.
func (q *Queries) merge(r *query.Reader, claims omap.Map[claim.Claim, omap.Unit], layer string, in lookupStep) *Policy {
	var sets []*Policy
	read := 0
	for c := range claims.All() {
		if c.Kind != claim.Policy || c.Namespace != in.namespace || !c.VisibleTo(layer) {
			continue
		}
		if read++; read > maxRules {
			break
		}
		rule, ok := q.tables.DestinationRules.Get(r, c.Object())
		if !ok || in.private && rule.Audience != intern.Of(layer) {
			continue
		}
		at := slices.IndexFunc(sets, func(p *Policy) bool { return p.audience == rule.Audience })
		if at < 0 {
			at = len(sets)
			sets = append(sets, &Policy{audience: rule.Audience})
		}
		sets[at].add(rule)
	}
	if len(sets) == 0 {
		return nil
	}
	return sets[len(sets)-1]
}

func (p *Policy) add(rule *state.DestinationRule) {
	p.Objects = append(p.Objects, rule.Object)
	p.hashes = append(p.hashes, rule.Hash)
	p.Credential = p.Credential || rule.Credential
	if p.Top == nil {
		p.Top = rule.Spec.TrafficPolicy
	}
	for _, s := range rule.Spec.Subsets {
		if s.Name != "" && !slices.ContainsFunc(p.Subsets, func(o *networking.Subset) bool { return o.Name == s.Name }) {
			p.Subsets = append(p.Subsets, s)
		}
	}
}
