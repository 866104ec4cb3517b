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
