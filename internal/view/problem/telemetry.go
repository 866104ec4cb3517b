package problem

import (
	"fmt"

	telemetryapi "istio.io/api/telemetry/v1alpha1"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/provider"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/telemetry"
)

// telemetry warns of a Telemetry that selects no workload, and of providers that cannot be used.
func (f *findings) telemetry() {
	row, ok := f.q.tables.Telemetry.Objects.Get(f.r, f.key)
	if !ok {
		return
	}
	switch labels := row.Selection.Labels; {
	case row.Selection.Targeted:
	case labels.Empty():
		if first, ok := telemetry.Wide(f.q.tables, f.r, f.key.Namespace); ok && first != f.key {
			f.conflict("telemetry-overruled", "spec.selector", "%s is older and has no selector either: this one is not used; merge them", first)
		}
	default:
		if first := telemetry.Selecting(f.q.tables, f.r, f.key.Namespace, labels); first != f.key {
			f.conflict("telemetry-overruled", "spec.selector", "%s is older and selects all workloads that this one selects: this one is not used; merge them", first)
			break
		}
		f.selectorWithoutWorkload("spec.selector", mesh.LabelMap(labels), func(id string) bool {
			class, ok := f.q.scope.Class.Get(f.r, id)
			return ok && class.Telemetry == f.key
		})
	}
	for i, e := range row.Spec.GetAccessLogging() {
		f.telemetryProviders(fmt.Sprintf("spec.accessLogging[%d]", i), e.GetProviders(), provider.ForLogs)
	}
	for i, e := range row.Spec.GetTracing() {
		f.telemetryProviders(fmt.Sprintf("spec.tracing[%d]", i), e.GetProviders(), provider.ForTraces)
	}
	for i, e := range row.Spec.GetMetrics() {
		f.telemetryProviders(fmt.Sprintf("spec.metrics[%d]", i), e.GetProviders(), provider.ForMetrics)
	}
}

// telemetryProviders checks the providers that an entry names.
func (f *findings) telemetryProviders(at string, list []*telemetryapi.ProviderRef, use provider.Use) {
	for i, ref := range list {
		if i == maxChecked {
			return
		}
		at := fmt.Sprintf("%s.providers[%d].name", at, i)
		p, found := f.q.tables.Telemetry.ProviderFor(f.r, ref.GetName(), use)
		switch {
		case p == nil && found:
			f.fail("telemetry-no-provider", at, "the provider %q is not one for %s: the entry does nothing with it; name one of another kind", ref.GetName(), useName(use))
			continue
		case p == nil:
			f.fail("telemetry-no-provider", at, "the mesh configuration has no extension provider %q for %s: the entry does nothing with it; declare it in extensionProviders, or correct the name",
				ref.GetName(), useName(use))
			continue
		}
		if name := f.q.tables.MissingVariable(p); name != "" {
			f.fail("telemetry-no-provider", at, "the provider %q has a header with the value of %s, which the environment of the control plane does not have: the header is not sent; set the variable, or write the value",
				ref.GetName(), name)
		}
		service, port := provider.TelemetryService(p)
		if service == "" {
			continue
		}
		var set scope.Set // a provider for the mesh must be seen from everywhere
		if f.key.Namespace != f.q.tables.RootNamespace(f.r) {
			set.Namespace = f.key.Namespace
		}
		if _, trouble := f.q.scope.Backend(f.r, set, service, port); trouble != "" {
			f.fail("telemetry-no-provider", at, "the provider %q cannot be reached, so it gets nothing: %s; declare the service, or correct the provider", ref.GetName(), trouble)
		}
	}
}

func useName(use provider.Use) string {
	switch use {
	case provider.ForLogs:
		return "access logs"
	case provider.ForTraces:
		return "traces"
	}
	return "metrics"
}
