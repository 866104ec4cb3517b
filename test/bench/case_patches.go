package main

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"
	telemetry "istio.io/api/telemetry/v1alpha1"
	typev1 "istio.io/api/type/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// rootNamespace has the objects that count for the whole mesh.
const rootNamespace = "istio-system"

// headerFilter is an EnvoyFilter that adds a filter to all inbound connection managers, or to the inbound connection managers of workloads with an app. With each generation its
// content is different.
func headerFilter(namespace, name, app string, generation int) *api.Object {
	value, err := structpb.NewStruct(map[string]any{
		"name": name,
		"typed_config": map[string]any{
			"@type":               "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
			"default_source_code": map[string]any{"inline_string": fmt.Sprintf("function envoy_on_response(handle) handle:headers():add('x-generation', '%d') end", generation)},
		},
	})
	if err != nil {
		panic(err) // the fields above are constants
	}
	spec := &networking.EnvoyFilter{ConfigPatches: []*networking.EnvoyFilter_EnvoyConfigObjectPatch{{
		ApplyTo: networking.EnvoyFilter_HTTP_FILTER,
		Match: &networking.EnvoyFilter_EnvoyConfigObjectMatch{
			Context: networking.EnvoyFilter_SIDECAR_INBOUND,
			ObjectTypes: &networking.EnvoyFilter_EnvoyConfigObjectMatch_Listener{Listener: &networking.EnvoyFilter_ListenerMatch{
				FilterChain: &networking.EnvoyFilter_ListenerMatch_FilterChainMatch{Filter: &networking.EnvoyFilter_ListenerMatch_FilterMatch{
					Name:      "envoy.filters.network.http_connection_manager",
					SubFilter: &networking.EnvoyFilter_ListenerMatch_SubFilterMatch{Name: "envoy.filters.http.router"},
				}},
			}},
		},
		Patch: &networking.EnvoyFilter_Patch{Operation: networking.EnvoyFilter_Patch_INSERT_BEFORE, Value: value},
	}}}
	if app != "" {
		spec.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": app}}
	}
	return object(namespace, name, spec)
}

// inboundLogs is a Telemetry that logs some requests at all servers. With each generation they are different ones.
func inboundLogs(generation int) *api.Object {
	return object(rootNamespace, "logs", &telemetry.Telemetry{AccessLogging: []*telemetry.AccessLogging{{
		Match:     &telemetry.AccessLogging_LogSelector{Mode: telemetry.WorkloadMode_SERVER},
		Providers: []*telemetry.ProviderRef{{Name: "envoy"}},
		Filter:    &telemetry.AccessLogging_Filter{Expression: fmt.Sprintf("response.code >= %d", 400+generation%100)},
	}}})
}

// addExtras adds what meshes in use have: an EnvoyFilter, metrics and logs for all, and an AuthorizationPolicy in each namespace.
func (w *world) addExtras() {
	w.addPolicies()
	w.all = append(w.all, headerFilter(rootNamespace, "all", "", 0), inboundLogs(0), object(rootNamespace, "metrics", &telemetry.Telemetry{
		Selector: &typev1.WorkloadSelector{MatchLabels: map[string]string{"version": "v1"}},
		Metrics:  []*telemetry.Metrics{{Providers: []*telemetry.ProviderRef{{Name: "prometheus"}}}},
	}))
}

// listenerOf is a change of one listener of the concerned streams; all if only is nil.
func listenerOf(name string, only func(*stream) bool, edit func(n int) edit) change {
	return change{name: name, step: func(_ *world, n int) step {
		r := &round{only: only}
		r.need[resource.Listener] = 1
		return step{edit(n), r}
	}}
}

// patched measures an EnvoyFilter that comes for the workloads of one class, one for the whole mesh that changes, beside a Telemetry that changes the
// same listeners; and changes of other objects in a mesh with all of that beside a mesh without, by turns.
func patched(b *bench) error {
	b.release()
	plain, with := newWorld(b.sizes.small, false), newWorld(b.sizes.small, false)
	with.addExtras()
	var meshes []*mesh
	for i, w := range []*world{plain, with} {
		m, err := b.beside(w, i*b.sizes.streams)
		if m != nil {
			defer m.plane.close()
		}
		if err != nil {
			return err
		}
		defer m.fleet.close()
		meshes = append(meshes, m)
	}
	if err := b.patches(meshes[1]); err != nil {
		return err
	}
	return b.ratios("patches-1k", meshes)
}

// patches measures changes of EnvoyFilters.
func (b *bench) patches(m *mesh) error {
	one := listenerOf("filter-one", func(s *stream) bool { return s.script.namespace == 0 }, func(n int) edit {
		o := headerFilter(namespace(0), "one", app(0), n)
		if n%2 == 1 {
			return edit{del: []api.Key{o.Key}}
		}
		return edit{set: []*api.Object{o}}
	})
	all := listenerOf("filter-all", nil, func(n int) edit { return edit{set: []*api.Object{headerFilter(rootNamespace, "all", "", n+1)}} })
	logs := listenerOf("logs", nil, func(n int) edit { return edit{set: []*api.Object{inboundLogs(n + 1)}} })
	for _, c := range []change{one, all, logs} {
		if _, err := m.changes(b, m.fleet, c, 2); err != nil { // the first ones grow buffers
			return err
		}
	}
	for range b.reps(9) {
		var cost [3]time.Duration
		for i, c := range []change{one, all, logs} {
			var err error
			if cost[i], err = b.costOf(c, b.reps(20)&^1)(m); err != nil { // an even number, so that the filter for one is gone again
				return err
			}
		}
		b.record("patches-1k/one-cpu", millis(cost[0]))
		b.record("patches-1k/all-cpu", millis(cost[1]))
		b.record("patches-1k/all-ratio", float64(cost[1])/float64(cost[2]))
	}
	return nil
}
