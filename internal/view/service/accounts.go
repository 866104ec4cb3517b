package service

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// defineAccounts adds the collection of the accounts of all Services of type ClusterIP.
func (q *Queries) defineAccounts(g *query.Graph) {
	services := func(r *query.Reader, _ struct{}) omap.Map[api.Key, omap.Unit] {
		return q.tables.Kube.ClusterIPs.Group(r, struct{}{})
	}
	elem := query.Define(g, "serviceAccounts", slices.Equal[[]state.Accounts], func(r *query.Reader, k api.Key) ([]state.Accounts, bool) {
		spec, ok := q.tables.Services.Get(r, k)
		who, selects := q.tables.Identities.Get(r, k)
		if !ok || !selects {
			return nil, false
		}
		var list []string
		known := false
		q.eachSelected(r, Declaration{Object: k, Spec: spec}, who.Selector, func(account string) {
			known = true
			if account != meshTLSAccount {
				list = append(list, account)
			}
		})
		slices.Sort(list)
		return []state.Accounts{{Service: k, List: intern.Of(slices.Compact(list)...), Known: known}}, true
	})
	q.Accounts = query.Each(g, "accountsOfServices", services, elem, func(_ struct{}, k api.Key) api.Key { return k })
}
