package problem

import (
	"fmt"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
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
	f.unaskedBootstrap()
	selection, ok := f.q.tables.Filters.Selections.Get(f.r, f.key)
	if !ok || selection.Labels.Empty() || selection.Targeted || f.key.Namespace == f.q.tables.RootNamespace(f.r) {
		return
	}
	f.selectorWithoutWorkload("spec.workloadSelector", mesh.LabelMap(selection.Labels), func(id string) bool {
		class, ok := f.q.scope.Class.Get(f.r, id)
		return ok && class.Filters.Has(f.key)
	})
}

// unaskedBootstrap warns of patches of the bootstrap that have no effect on connected proxies, because their agents did not ask for any.
func (f *findings) unaskedBootstrap() {
	row, ok := f.q.tables.Filters.Rows.Get(f.r, f.key)
	if !ok {
		return
	}
	for i, p := range row.Spec.GetConfigPatches() {
		if p.GetApplyTo() != networking.EnvoyFilter_BOOTSTRAP {
			continue
		}
		names, more := f.unasking(p)
		if len(names) == 0 {
			continue
		}
		list := strings.Join(names, ", ")
		if more {
			list += " and others"
		}
		f.warn("patch-not-asked", fmt.Sprintf("spec.configPatches[%d]", i), "the patch has no effect on the connected %s: no agent asked for patches of the bootstrap when it started; set BOOTSTRAP_XDS_AGENT=true for the agent, and restart it", list)
	}
}

// unasking returns the names of connected proxies that a patch of the bootstrap is for, and for which no agent asks for patches. more says that there
// are others.
func (f *findings) unasking(p *networking.EnvoyFilter_EnvoyConfigObjectPatch) (names []string, more bool) {
	namespace := f.key.Namespace
	if namespace == f.q.tables.RootNamespace(f.r) {
		namespace = ""
	}
	condition, conditional := state.ConditionOf(p)
	all := f.q.tables.Filters.ForAll.Group(f.r, f.key.Namespace).Has(f.key)
	checked := 0
	for id := range f.q.tables.Bootstrapped.Group(f.r, namespace).All() {
		if checked++; checked > maxChecked || len(names) > maxPlaces {
			return names[:min(len(names), maxPlaces)], len(names) > 0
		}
		id := string(id)
		if agent, ok := f.q.tables.Proxies.Get(f.r, proxy.AgentOf(id)); ok && agent.BootstrapOf != "" {
			continue
		}
		class, _ := f.q.scope.Class.Get(f.r, id)
		row, ok := f.q.tables.Proxies.Get(f.r, id)
		if ok && (all || class.Filters.Has(f.key)) && inContext(p.GetMatch().GetContext(), row.Role) && (!conditional || condition.Holds(row)) {
			names = append(names, row.Name+"."+row.Namespace)
		}
	}
	return names[:min(len(names), maxPlaces)], len(names) > maxPlaces
}

// inContext reports whether patches of the bootstrap in a context are for proxies of a role.
func inContext(c networking.EnvoyFilter_PatchContext, role proxy.Role) bool {
	switch c {
	case networking.EnvoyFilter_ANY:
		return true
	case networking.EnvoyFilter_GATEWAY:
		return role == proxy.Router
	case networking.EnvoyFilter_SIDECAR_INBOUND, networking.EnvoyFilter_SIDECAR_OUTBOUND:
		return role == proxy.Sidecar
	}
	return false
}
