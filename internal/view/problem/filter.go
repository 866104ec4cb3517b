package problem

import (
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/filter"
)

// envoyFilter warns of a selector that selects no known workload. What becomes of its patches is found where they are applied.
func (f *findings) envoyFilter() {
	all, root := f.q.tables.Filters.ForAll, f.q.tables.RootNamespace(f.r)
	count := all.Group(f.r, root).Len()
	if f.key.Namespace != root {
		count += all.Group(f.r, f.key.Namespace).Len()
	}
	if count > filter.Max {
		f.warn("limit-exceeded", "", "%d EnvoyFilters apply to all workloads here, and only %d are used: put patches together in fewer objects", count, filter.Max)
	}
	selection, ok := f.q.tables.Filters.Selections.Get(f.r, f.key)
	if !ok || selection.Labels.Empty() || selection.Targeted || f.key.Namespace == f.q.tables.RootNamespace(f.r) {
		return
	}
	f.selectorWithoutWorkload("spec.workloadSelector", mesh.LabelMap(selection.Labels), func(id string) bool {
		class, ok := f.q.scope.Class.Get(f.r, id)
		return ok && class.Filters.Has(f.key)
	})
}
