package telemetry_test

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/provider"
	"github.com/pilotmesh/pilot/internal/view/telemetry"
)

// TestBuiltInProviders: the providers prometheus and envoy exist without a mesh configuration, and with one that names others.
func TestBuiltInProviders(t *testing.T) {
	for _, mesh := range []string{"", "extensionProviders: [{name: other, zipkin: {service: zipkin.obs, port: 9411}}]\n"} {
		w := meshtest.New(t)
		if mesh != "" {
			w.Configure(mesh)
		}
		w.Apply(`
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: all, namespace: istio-system}
spec: {metrics: [{providers: [{name: prometheus}]}], accessLogging: [{providers: [{name: envoy}]}]}
`)
		r := w.Graph.Naive()
		set := telemetry.SetOf(w.Tables, r, proxy.Class{Namespace: "shop"})
		if len(telemetry.MetricsOf(w.Tables, r, set, telemetry.Client)) == 0 || !telemetry.Measured(w.Tables, r) {
			t.Errorf("mesh configuration %q: no metrics", mesh)
		}
		if p, _ := w.Tables.Telemetry.ProviderFor(r, "envoy", provider.ForLogs); p == nil {
			t.Errorf("mesh configuration %q: no access log", mesh)
		}
	}
}
