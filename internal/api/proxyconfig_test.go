package api

import (
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
)

// TestOverlayProxy lays annotations over a ProxyConfig: a field replaces the former one, entries of maps are added, and each header is a setting
// of its own.
func TestOverlayProxy(t *testing.T) {
	read := func(text string) *meshconfig.ProxyConfig {
		p := &meshconfig.ProxyConfig{}
		if err := protojson.Unmarshal([]byte(text), p); err != nil {
			t.Fatal(err)
		}
		whole := DefaultMesh().DefaultConfig
		proto.Merge(whole, p)
		return whole
	}
	const base = `{"tracing": {"sampling": 50, "zipkin": {"address": "z:1"}}, "extraStatTags": ["a"], "proxyMetadata": {"A": "mesh", "B": "mesh"},
		"proxyHeaders": {"server": {"value": "mesh"}, "requestId": {"disabled": true}}}`
	for text, want := range map[string]string{
		"": base,
		"tracing: {sampling: 25}\nextraStatTags: [b]\nproxyMetadata: {B: pod}": `{"tracing": {"sampling": 25}, "extraStatTags": ["b"],
			"proxyMetadata": {"A": "mesh", "B": "pod"}, "proxyHeaders": {"server": {"value": "mesh"}, "requestId": {"disabled": true}}}`,
		"tracing: {}\nextraStatTags: []\nproxyHeaders: {attemptCount: {disabled: true}, server: {disabled: true}}": `{"tracing": {},
			"proxyMetadata": {"A": "mesh", "B": "mesh"},
			"proxyHeaders": {"server": {"disabled": true}, "requestId": {"disabled": true}, "attemptCount": {"disabled": true}}}`,
		"proxyHeaders: {}": base,
	} {
		if got, problems := OverlayProxy(read(base), text); len(problems) > 0 || !proto.Equal(got, read(want)) {
			t.Errorf("%q: %v, want %v (%v)", text, got, read(want), problems)
		}
	}
}
