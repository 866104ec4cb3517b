package node

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

func facts() Facts {
	return Facts{
		Role: "sidecar", Name: "web-1", Namespace: "shop", Domain: "shop.svc.cluster.local", Addresses: []string{"10.1.1.1", "fd00::1"},
		ServiceAccount: "web", ClusterID: "Kubernetes", Version: "1.0.0", Proxy: &meshv1alpha1.ProxyConfig{StatusPort: 15020},
		Labels:     map[string]string{"app": "web", "pod-template-hash": "5f", "istio-locality": "r1.z1.s1"},
		HealthPort: 15021,
	}
}

func asMap(t *testing.T, f Facts) map[string]any {
	t.Helper()
	n, err := f.Node()
	if err != nil {
		t.Fatal(err)
	}
	b, err := protojson.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestNode(t *testing.T) {
	want := map[string]any{
		"id": "sidecar~10.1.1.1~web-1.shop~shop.svc.cluster.local", "cluster": "web.shop",
		"locality": map[string]any{"region": "r1", "zone": "z1", "subZone": "s1"},
		"metadata": map[string]any{
			"NAME": "web-1", "NAMESPACE": "shop", "SERVICE_ACCOUNT": "web", "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.0.0",
			"INSTANCE_IPS": "10.1.1.1,fd00::1", "INTERCEPTION_MODE": "REDIRECT", "ENVOY_STATUS_PORT": 15021.0,
			"LABELS":       map[string]any{"app": "web", "istio-locality": "r1.z1.s1"},
			"PROXY_CONFIG": map[string]any{"statusPort": 15020.0},
		},
	}
	if diff := cmp.Diff(want, asMap(t, facts())); diff != "" {
		t.Error(diff)
	}
}

// TestEnvironmentWins: over values of the agent, except for facts that the agent knows better.
func TestEnvironmentWins(t *testing.T) {
	f := facts()
	f.ExitOnZeroConnections = true
	f.Annotations = map[string]string{"a": "b"}
	f.Metadata = map[string]any{
		"CLUSTER_ID": "east", "INTERCEPTION_MODE": "NONE", "NETWORK": "n1", "ISTIO_VERSION": "1.20.0",
		"INSTANCE_IPS": "1.2.3.4", "LABELS": map[string]any{"app": "other", "version": "v1", "bad": 1.0}, "SERVICE_ACCOUNT": "",
	}
	m := asMap(t, f)["metadata"].(map[string]any)
	for key, want := range map[string]any{
		"CLUSTER_ID": "east", "INTERCEPTION_MODE": "NONE", "NETWORK": "n1", "ISTIO_VERSION": "1.20.0",
		"INSTANCE_IPS": "10.1.1.1,fd00::1", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "true", "ANNOTATIONS": map[string]any{"a": "b"},
		"LABELS": map[string]any{"app": "web", "version": "v1", "istio-locality": "r1.z1.s1"}, "SERVICE_ACCOUNT": nil,
	} {
		if diff := cmp.Diff(want, m[key]); diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
	}
}

func TestCluster(t *testing.T) {
	named := &meshv1alpha1.ProxyConfig{ClusterName: &meshv1alpha1.ProxyConfig_TracingServiceName_{TracingServiceName: meshv1alpha1.ProxyConfig_CANONICAL_NAME_ONLY}}
	both := &meshv1alpha1.ProxyConfig{ClusterName: &meshv1alpha1.ProxyConfig_TracingServiceName_{TracingServiceName: meshv1alpha1.ProxyConfig_CANONICAL_NAME_AND_NAMESPACE}}
	for _, c := range []struct {
		change func(*Facts)
		want   string
	}{
		{func(*Facts) {}, "web.shop"},
		{func(f *Facts) { f.ServiceCluster = "mine" }, "mine"},
		{func(f *Facts) { f.ServiceCluster = "istio-proxy" }, "web.shop"},
		{func(f *Facts) { f.Labels = nil }, "istio-proxy.shop"},
		{func(f *Facts) { f.Labels = nil; f.Metadata = map[string]any{"WORKLOAD_NAME": "w"} }, "w.shop"},
		{func(f *Facts) { f.Proxy = named }, "web"},
		{func(f *Facts) { f.Proxy = both; f.Labels["service.istio.io/canonical-name"] = "c" }, "c.shop"},
	} {
		f := facts()
		c.change(&f)
		if got := f.cluster(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestLocality(t *testing.T) {
	for _, c := range []struct {
		labels map[string]string
		want   string
	}{
		{map[string]string{"istio-locality": "r1.z1"}, "r1 z1 "},
		{map[string]string{"istio-locality": "r1.z1", "topology.istio.io/locality": "r2"}, "r2  "},
		{map[string]string{"istio-locality": "us.east/z.1/s"}, "us.east z.1 s"},
		{map[string]string{regionLabel: "r", zoneLabel: "z", subZoneLabel: "s"}, "r z s"},
		{map[string]string{"istio-locality": "r1", regionLabel: "r"}, "r1  "},
		{map[string]string{zoneLabel: "z"}, "none"},
		{nil, "none"},
	} {
		got := "none"
		if l := (Facts{Labels: c.labels}).locality(); l != nil {
			got = l.Region + " " + l.Zone + " " + l.SubZone
		}
		if got != c.want {
			t.Errorf("%v: got %q, want %q", c.labels, got, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	f := facts()
	f.Addresses = nil
	if _, err := f.Node(); err == nil {
		t.Error("a node without an address")
	}
	f = facts()
	f.Metadata = map[string]any{"X": []int{1}} // JSON has no such type
	if _, err := f.Node(); err == nil {
		t.Error("metadata that is no JSON")
	}
}
