package telemetry_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestVariables: a header of a provider has the value of the variable that it names, with percent signs doubled. A header whose variable does not
// exist is left out, with a Problem; the others are sent.
func TestVariables(t *testing.T) {
	w := meshtest.NewWith(t, meshtest.Options{Variable: func(name string) (string, bool) { return "50% of it", name == "TOKEN" }})
	w.Configure(`
extensionProviders:
- name: otel
  opentelemetry:
    {service: collector.example, port: 4318, http: {path: /v1/traces, headers: [{name: token, envName: TOKEN}, {name: gone, envName: GONE}, {name: plain, value: v}]}}
`)
	w.Apply(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: collector, namespace: shop}
spec: {hosts: [collector.example], resolution: STATIC, addresses: [10.99.0.1], ports: [{number: 4318, name: http, protocol: HTTP}], endpoints: [{address: 10.1.1.1}]}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: traces, namespace: istio-system}
spec: {tracing: [{providers: [{name: otel}], randomSamplingPercentage: 100}]}
`)
	s := w.State(w.Connect(meshtest.Node(t, "sidecar~10.1.1.2~web-0.shop~shop.svc.cluster.local", "{}")))
	meshtest.Validate(t, s)
	l, ok := s.Get(resource.Listener, "0.0.0.0_4318")
	if !ok {
		t.Fatalf("no listener of the collector among %q", namesOf(s))
	}
	text := meshtest.YAML(t, l)
	for part, want := range map[string]bool{"value: 50%% of it": true, "key: token": true, "key: plain": true, "key: gone": false} {
		if strings.Contains(text, part) != want {
			t.Errorf("%q in the listener: %v, want %v", part, !want, want)
		}
	}
	if all := strings.Join(w.Problems(), "\n"); strings.Count(all, "GONE") != 1 || strings.Contains(all, "TOKEN") {
		t.Errorf("Problems:\n%s\nwant one about GONE", all)
	}
}

// TestTraceSampling: the control plane decides which percentage of new requests is traced, 0 included, unless the mesh does.
func TestTraceSampling(t *testing.T) {
	half, none := 0.5, 0.0
	for _, c := range []struct {
		percent *float64
		mesh    string
		want    string
	}{{nil, "{}", "value: 1"}, {&half, "{}", "value: 0.5"}, {&none, "{}", "{} upgrade_configs:"}, {&half, "{sampling: 20}", "value: 20"}} {
		w := meshtest.NewWith(t, meshtest.Options{TraceSampling: c.percent})
		w.Configure("{defaultProviders: {tracing: [z]}, extensionProviders: [{name: z, zipkin: {service: collector.example, port: 80}}], defaultConfig: {tracing: " + c.mesh + "}}")
		w.Apply(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: collector, namespace: shop}
spec: {hosts: [collector.example], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.1.1}]}
`)
		s := w.State(w.Connect(meshtest.Node(t, "sidecar~10.1.1.2~web-0.shop~shop.svc.cluster.local", "{}")))
		l, ok := s.Get(resource.Listener, "0.0.0.0_80")
		if !ok {
			t.Fatalf("no listener among %q", namesOf(s))
		}
		_, sampling, _ := strings.Cut(meshtest.YAML(t, l), "random_sampling:")
		if got := strings.Join(strings.Fields(sampling)[:2], " "); got != c.want {
			t.Errorf("percentage %v, mesh %s: random_sampling: %s, want %s", c.percent, c.mesh, got, c.want)
		}
	}
}

func namesOf(s *resource.State) (names []string) {
	for r := range s.Types[resource.Listener].All() {
		names = append(names, r.Name())
	}
	return names
}
