package state

import (
	"cmp"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Filters are the EnvoyFilters.
type Filters struct {
	// Rows are the EnvoyFilters, Orders the order in which they are applied, and Selections the workloads that they select.
	Rows       store.Table[api.Key, *EnvoyFilter]
	Orders     store.Table[api.Key, FilterOrder]
	Selections store.Table[api.Key, selected.Workloads]
	// ForAll lists the EnvoyFilters of a namespace that select all workloads, and ByLabel the others by the first label of their selector.
	ForAll  store.Index[string, api.Key]
	ByLabel store.Index[selected.LabelIn, selected.Policy]
	// Conditions are what the patches of an EnvoyFilter demand of proxies, each once. One that demands nothing has no row. ConditionalIn lists
	// the EnvoyFilters of a namespace that have a row.
	Conditions    store.Table[api.Key, intern.List[proxy.Condition]]
	ConditionalIn store.Index[string, api.Key]
}

// EnvoyFilter is an EnvoyFilter.
type EnvoyFilter struct {
	Object api.Key
	Spec   *networking.EnvoyFilter
	Hash   omap.Hash
}

// FilterOrder orders the EnvoyFilters of a workload. With equal priority, the root namespace comes first.
type FilterOrder struct {
	Priority int32
	Created  int64 // in microseconds since 1970
}

// Compare orders by priority, then by age.
func (o FilterOrder) Compare(other FilterOrder) int {
	return cmp.Or(cmp.Compare(o.Priority, other.Priority), cmp.Compare(o.Created, other.Created))
}

// ConditionOf returns what a patch demands of proxies; ok is false if it demands nothing.
func ConditionOf(p *networking.EnvoyFilter_EnvoyConfigObjectPatch) (c proxy.Condition, ok bool) {
	m := p.GetMatch().GetProxy()
	c = proxy.Condition{Version: m.GetProxyVersion(), Metadata: mesh.LabelsOf(m.GetMetadata())}
	return c, c != proxy.Condition{}
}

func (t *Tables) defineFilters(db *store.DB) {
	f := &t.Filters
	f.Rows = store.NewTable[api.Key](db, "envoyFilters", func(a, b *EnvoyFilter) bool { return a.Hash == b.Hash })
	f.Rows.SetRole("patches")
	f.Orders = store.NewTable[api.Key](db, "filterOrders", same[FilterOrder])
	f.Selections = store.NewTable[api.Key](db, "filterSelections", same[selected.Workloads])
	f.ForAll = store.NewIndex(f.Selections, "filtersForAll", selected.ForAll)
	f.ByLabel = store.NewIndex(f.Selections, "filtersByLabel", selected.ByFirstLabel)
	f.Conditions = store.NewTable[api.Key](db, "filterConditions", same[intern.List[proxy.Condition]])
	f.ConditionalIn = store.NewIndex(f.Conditions, "conditionalFilters", func(k api.Key, _ intern.List[proxy.Condition], add func(string, api.Key)) {
		add(k.Namespace, k)
	})
}

func (t *Tables) splitEnvoyFilter(tx *store.Txn, o *api.Object, spec *networking.EnvoyFilter) {
	t.Filters.Rows.Set(tx, o.Key, &EnvoyFilter{Object: o.Key, Spec: spec, Hash: o.Hash})
	t.Filters.Orders.Set(tx, o.Key, FilterOrder{spec.GetPriority(), age(o)})
	t.Filters.Selections.Set(tx, o.Key, selected.By(spec.GetWorkloadSelector().GetLabels(), nil, spec.GetTargetRefs()))
	var conditions []proxy.Condition
	for _, p := range spec.GetConfigPatches() {
		if c, ok := ConditionOf(p); ok && !slices.Contains(conditions, c) {
			conditions = append(conditions, c)
		}
	}
	if len(conditions) == 0 {
		t.Filters.Conditions.Delete(tx, o.Key)
		return
	}
	t.Filters.Conditions.Set(tx, o.Key, intern.Of(conditions...))
}
