package node

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// headerOf returns the header of a proxy with some metadata, as its Envoy has it; empty for none.
func headerOf(t *testing.T, metadata map[string]any) string {
	t.Helper()
	m, err := structpb.NewStruct(metadata)
	if err != nil {
		t.Fatal(err)
	}
	return variable(Variables(&corev3.Node{Metadata: m}, nil), "PROXY_PEER_METADATA")
}

// TestPeerHeader: a proxy whose certificates come from another authority names its workload in a header that proxies of Istio read as a Struct, and stock
// Envoy as a Value. Both skip the part that is for the other one.
func TestPeerHeader(t *testing.T) {
	metadata := map[string]any{
		"NAME": "web-v1-5f-abcde", "NAMESPACE": "shop", "CLUSTER_ID": "east", "WORKLOAD_NAME": "web-v1", "LABELS": map[string]any{"app": "web", "version": "v1", "secret": "x"},
		"WORKLOAD_CERTIFICATES": "other-authority",
	}
	text, err := base64.StdEncoding.DecodeString(headerOf(t, metadata))
	if err != nil {
		t.Fatal(err)
	}
	var forIstio structpb.Struct
	var forEnvoy structpb.Value
	if err := proto.Unmarshal(text, &forIstio); err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(text, &forEnvoy); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{
		"NAME": "web-v1-5f-abcde", "NAMESPACE": "shop", "CLUSTER_ID": "east", "WORKLOAD_NAME": "web-v1",
		"LABELS": map[string]any{"app": "web", "version": "v1", "service.istio.io/canonical-name": "web", "service.istio.io/canonical-revision": "v1"},
	}, forIstio.AsMap()); diff != "" {
		t.Error("for Istio", diff)
	}
	if diff := cmp.Diff(any(map[string]any{
		"workload": "web-v1", "app": "web", "version": "v1", "canonical_service": "web", "canonical_revision": "v1", "cluster": "east",
	}), forEnvoy.AsInterface()); diff != "" {
		t.Error("for Envoy", diff)
	}
	if first := headerOf(t, metadata); slices.ContainsFunc(make([]int, 20), func(int) bool { return headerOf(t, metadata) != first }) {
		t.Error("the header of one workload differs from time to time")
	}
}

// TestNoPeerHeader: a proxy with certificates of the control plane, or with none, has no header; nor has one whose labels no message can have.
func TestNoPeerHeader(t *testing.T) {
	for _, from := range []any{nil, "none", "other"} {
		if got := headerOf(t, map[string]any{"LABELS": map[string]any{"app": "web"}, "WORKLOAD_CERTIFICATES": from}); got != "" {
			t.Errorf("certificates %v: %q", from, got)
		}
	}
	longest := map[string]any{"WORKLOAD_CERTIFICATES": otherAuthority, "NAME": strings.Repeat("n", 253), "NAMESPACE": strings.Repeat("n", 63), "CLUSTER_ID": strings.Repeat("c", 253), "WORKLOAD_NAME": strings.Repeat("w", 253)}
	labels := map[string]any{}
	for _, name := range []string{"app", "version", "service.istio.io/canonical-name", "service.istio.io/canonical-revision"} {
		labels[name] = strings.Repeat("l", 63)
	}
	longest["LABELS"] = labels
	const most = 8 << 10 // header_to_metadata takes no longer value
	if n := len(headerOf(t, longest)); n == 0 || n > most {
		t.Errorf("the longest header has %d bytes; servers take %d", n, most)
	}
}

// TestOtherAuthority: the node says where its certificates come from, if that is not the control plane.
func TestOtherAuthority(t *testing.T) {
	for want, change := range map[string]func(*Facts){
		"":                func(*Facts) {},
		"other-authority": func(f *Facts) { f.OtherAuthority = true },
		"none":            func(f *Facts) { f.NoCertificate = true },
		"mine":            func(f *Facts) { f.OtherAuthority, f.Metadata = true, map[string]any{"WORKLOAD_CERTIFICATES": "mine"} },
	} {
		f := facts()
		change(&f)
		if got, _ := asMap(t, f)["metadata"].(map[string]any)["WORKLOAD_CERTIFICATES"].(string); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
