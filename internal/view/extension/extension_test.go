package extension_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/extension"
	"github.com/pilotmesh/pilot/internal/view/filter"
	"github.com/pilotmesh/pilot/internal/view/telemetry"
)

// TestTargets: an EnvoyFilter, an extension and a Telemetry with targets are for the workloads in their namespace whose label names one of them. An
// object with other targets is for no workload, and an object without a selector is no facet of a class.
func TestTargets(t *testing.T) {
	w := meshtest.New(t)
	kinds := []string{"networking.istio.io/v1alpha3 EnvoyFilter", "extensions.istio.io/v1alpha1 WasmPlugin", "extensions.istio.io/v1alpha1 TrafficExtension", "telemetry.istio.io/v1 Telemetry"}
	for _, kind := range kinds {
		version, kind, _ := strings.Cut(kind, " ")
		rest := map[string]string{"WasmPlugin": ", url: oci://registry/plugin", "TrafficExtension": `, lua: {inlineCode: "x = 1"}`}[kind]
		for name, spec := range map[string]string{
			"edge/one":          "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: g}, {group: gateway.networking.k8s.io, kind: Gateway, name: h}]",
			"edge/service":      `targetRefs: [{group: "", kind: Service, name: g}]`,
			"istio-system/root": "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: g}]",
		} {
			namespace, name, _ := strings.Cut(name, "/")
			w.Apply("apiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: " + name + ", namespace: " + namespace + "}\nspec: {" + spec + rest + "}\n")
		}
	}
	for _, c := range []struct{ namespace, gateway, want string }{
		{"edge", "g", "EnvoyFilter/one TrafficExtension/one WasmPlugin/one Telemetry/one"}, {"edge", "h", "EnvoyFilter/one TrafficExtension/one WasmPlugin/one Telemetry/one"},
		{"edge", "i", ""}, {"shop", "g", ""}, {"istio-system", "g", "EnvoyFilter/root TrafficExtension/root WasmPlugin/root Telemetry/root"},
	} {
		labels := mesh.LabelsOf(map[string]string{mesh.GatewayNameLabel: c.gateway, "app": "gw"})
		r := w.Graph.Naive()
		keys := append(filter.Selecting(w.Tables, r, c.namespace, labels).Items(), extension.Selecting(w.Tables, r, c.namespace, labels).Items()...)
		if k := telemetry.Selecting(w.Tables, r, c.namespace, labels); k.Name != "" {
			keys = append(keys, k)
		}
		var names []string
		for _, k := range keys {
			names = append(names, k.Kind+"/"+k.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s in %s: %q, want %q", c.gateway, c.namespace, got, c.want)
		}
	}
	class := proxy.Class{Namespace: "edge"}
	if f, e, s := filter.SetOf(w.Tables, w.Graph.Naive(), class), extension.SetOf(w.Tables, w.Graph.Naive(), class), telemetry.SetOf(w.Tables, w.Graph.Naive(), class); f.Namespace+e.Namespace+s.Namespace != "" {
		t.Errorf("objects with targets are for all workloads: %+v %+v %+v", f, e, s)
	}
}
