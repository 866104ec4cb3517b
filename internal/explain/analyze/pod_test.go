package analyze_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/explain/analyze"
)

// TestAnnotations: each annotation with which the webhook would refuse a pod has a problem in its line, in pods and in templates of workloads.
func TestAnnotations(t *testing.T) {
	templates := map[string]func(annotations string) (text, place string){
		"Pod": func(s string) (string, string) {
			return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations: {" + s + "}\n", "pods.yaml:5: error: Pod default/a: metadata"
		},
		"Deployment": func(s string) (string, string) {
			return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, namespace: b}\nspec:\n  template:\n    metadata:\n      annotations: {" + s + "}\n", "pods.yaml:7: error: Deployment b/a: spec.template.metadata"
		},
		"CronJob": func(s string) (string, string) {
			return "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: {jobTemplate: {spec: {template: {metadata: {annotations: {" + s + "}}}}}}\n", "pods.yaml:4: error: CronJob default/a: spec.jobTemplate.spec.template.metadata"
		},
	}
	for _, c := range []struct{ name, refused, accepted string }{
		{"sidecar.istio.io/interceptionMode", "BRIDGE", "TPROXY"},
		{"status.sidecar.istio.io/port", "65536", "0"},
		{"readiness.status.sidecar.istio.io/periodSeconds", "-1", "5"},
		{"traffic.sidecar.istio.io/includeOutboundIPRanges", "10.0.0.0/40", "*"},
		{"traffic.sidecar.istio.io/excludeOutboundIPRanges", "*", "10.0.0.0/8"},
		{"traffic.sidecar.istio.io/includeInboundPorts", "http", "*"},
		{"traffic.sidecar.istio.io/excludeInboundPorts", "65536", "80,81"},
		{"prometheus.istio.io/merge-metrics", "yes", "false"},
		{"sidecar.istio.io/proxyCPU", "lots", "100m"},
		{"proxy.istio.io/config", "drainDuration: 1500ms", "drainDuration: 15s"},
		{"proxy.istio.io/config", "[", "zzUnknown: 1"},
		{"example.com/other", "", "anything"},
	} {
		for kind, of := range templates {
			for _, value := range []string{c.refused, c.accepted} {
				text, place := of(c.name + ": '" + value + "'")
				a := analyze.New()
				a.File("pods.yaml", []byte(text))
				got := texts(a.Problems())
				if value == c.accepted || value == "" {
					if len(got) > 0 {
						t.Errorf("%s with %s: %q: got %q", kind, c.name, value, got)
					}
				} else if len(got) != 1 || !strings.HasPrefix(got[0], place+".annotations["+c.name+"]: ") {
					t.Errorf("%s with %s: %q: got %q", kind, c.name, value, got)
				}
			}
		}
	}
}
