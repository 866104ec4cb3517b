package traffic

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// Policy is what the DestinationRules for a service add up to.
type Policy struct {
	// Objects are the rules it comes from, oldest first.
	Objects []api.Key
	// Top is the policy of the service as a whole; nil if there is none.
	Top *networking.TrafficPolicy
	// Subsets in the order they are declared.
	Subsets []*networking.Subset

	audience intern.List[string]
	hashes   []omap.Hash // of the objects: they stand for the content
}

// Equal reports whether the two come from the same rules.
func (p *Policy) Equal(o *Policy) bool {
	return slices.Equal(p.Objects, o.Objects) && slices.Equal(p.hashes, o.hashes)
}

// policy looks rules up where the client lives, then where the service lives, then in the root namespace. The first
// namespace that has one for the host decides alone, and there the narrowest host.
func (q *Queries) policy(r *query.Reader, v service.View) (*Policy, bool) {
	claims := make([]omap.Map[state.Claim, omap.Unit], 0, 8)
	any := false
	for host := range mesh.NarrowestFirst(v.Host) {
		m := q.tables.ByHost.Group(r, host)
		claims = append(claims, m)
		for c := range m.All() {
			any = any || c.Kind == state.PolicyClaim && c.VisibleTo(v.Layer)
		}
	}
	if !any {
		return nil, false
	}
	root := q.tables.RootNamespace(r)
	places := []place{{root, false}}
	if home := v.HomeOf(claims[0]); home != "" && home != root {
		places = []place{{home, false}, {root, false}}
	}
	if v.Layer != "" {
		// What the root namespace says to all must not go before what a service's own namespace says, whoever asks.
		places = slices.Insert(places, 0, place{v.Layer, v.Layer == root})
	}
	for _, in := range places {
		for _, m := range claims {
			if p := q.merge(r, m, v.Layer, in); p != nil {
				return p, true
			}
		}
	}
	return nil, false
}

// place is where rules are looked for.
type place struct {
	namespace string
	private   bool // only those that nobody else sees
}

// merge adds up the rules of one place for one host or pattern: the oldest top-level policy counts, subsets of all. Rules
// that are for different callers do not add up: of several such sets the youngest counts.
func (q *Queries) merge(r *query.Reader, claims omap.Map[state.Claim, omap.Unit], layer string, in place) *Policy {
	var sets []*Policy
	read := 0
	for c := range claims.All() {
		if c.Kind != state.PolicyClaim || c.Namespace != in.namespace || !c.VisibleTo(layer) {
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
	if p.Top == nil {
		p.Top = rule.Spec.TrafficPolicy
	}
	for _, s := range rule.Spec.Subsets {
		if s.Name != "" && !slices.ContainsFunc(p.Subsets, func(o *networking.Subset) bool { return o.Name == s.Name }) {
			p.Subsets = append(p.Subsets, s)
		}
	}
}
