package node

import (
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestVariables(t *testing.T) {
	metadata, err := structpb.NewStruct(map[string]any{
		"NAMESPACE": "shop", "CLUSTER_ID": "east", "WORKLOAD_NAME": "web-v1", "LABELS": map[string]any{"app": "web", "version": "v1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &corev3.Node{Cluster: "web.shop", Metadata: metadata}
	for _, c := range []struct{ environ, want []string }{
		{[]string{"HOME=/"}, []string{"HOME=/", "POD_NAMESPACE=shop", "ISTIO_META_CLUSTER_ID=east", "ISTIO_META_WORKLOAD_NAME=web-v1", "PROXY_APP=web", "PROXY_APP_VERSION=v1",
			"CANONICAL_SERVICE=web", "CANONICAL_REVISION=v1", "PROXY_UNKNOWN=unknown", "OTEL_RESOURCE_ATTRIBUTES=service.name=web.shop", "DD_SERVICE=web.shop"}},
		{[]string{"OTEL_RESOURCE_ATTRIBUTES=a=b", "DD_SERVICE=mine"}, []string{"OTEL_RESOURCE_ATTRIBUTES=a=b,service.name=web.shop", "DD_SERVICE=mine"}},
		{[]string{"OTEL_RESOURCE_ATTRIBUTES=service.name=mine"}, []string{"OTEL_RESOURCE_ATTRIBUTES=service.name=mine"}},
	} {
		got := Variables(n, c.environ)
		for _, v := range c.want {
			if !slices.Contains(got, v) {
				t.Errorf("%q: no %q in %q", c.environ, v, got)
			}
		}
	}
	if got := Variables(n, []string{"OTEL_RESOURCE_ATTRIBUTES=service.name=mine"}); slices.Contains(got, "OTEL_RESOURCE_ATTRIBUTES=service.name=web.shop") {
		t.Errorf("the name of the service is replaced: %q", got)
	}
}

// TestConventionalName: where the injection has set the attributes of OpenTelemetry's conventions, the service has its name by them, too: by the
// annotation, the label, the workload, the pod. Its name in Envoy stays.
func TestConventionalName(t *testing.T) {
	const injected = "OTEL_RESOURCE_ATTRIBUTES=service.namespace=shop"
	metadata := map[string]any{"NAME": "web-1", "LABELS": map[string]any{}, "ANNOTATIONS": map[string]any{}}
	for _, step := range []struct{ key, name, value, want string }{
		{"", "", "", "web-1"},
		{"", "WORKLOAD_NAME", "web", "web"},
		{"LABELS", "app.kubernetes.io/name", "shop,front", "shop%2Cfront"},
		{"ANNOTATIONS", "resource.opentelemetry.io/service.name", "front", "front"},
	} {
		at := metadata
		if step.key != "" {
			at = metadata[step.key].(map[string]any)
		}
		if step.name != "" {
			at[step.name] = step.value
		}
		fields, err := structpb.NewStruct(metadata)
		if err != nil {
			t.Fatal(err)
		}
		got := Variables(&corev3.Node{Cluster: "canonical.shop", Metadata: fields}, []string{injected})
		if want := injected + ",service.name=" + step.want; !slices.Contains(got, want) {
			t.Errorf("after %s: no %q in %q", step.name, want, got)
		}
		if !slices.Contains(got, "DD_SERVICE=canonical.shop") {
			t.Errorf("after %s: the name for Datadog has changed: %q", step.name, got)
		}
	}
}
