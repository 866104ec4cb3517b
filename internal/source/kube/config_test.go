package kube

import (
	"encoding/json"
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
)

const goodEntry = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: a
  namespace: shop
  uid: 5f1c
  generateName: a
  resourceVersion: "12"
  creationTimestamp: "2026-01-01T00:00:00Z"
  labels: {istio.io/rev: canary}
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}
  managedFields: [{manager: kubectl}]
spec: {hosts: [a.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}
`

func custom(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u
}

func entryKind(t testing.TB) api.Kind {
	t.Helper()
	k, ok := api.FindKind(api.KindServiceEntry)
	if !ok {
		t.Fatal("no such kind")
	}
	return k
}

func TestConfigured(t *testing.T) {
	c := newConverter()
	good := c.configured(entryKind(t), custom(t, goodEntry))
	if !good.good || good.revision != "canary" || len(good.problems) > 0 {
		t.Fatalf("%+v", good)
	}
	if o := good.object; o.Key != (api.Key{Kind: "ServiceEntry", Namespace: "shop", Name: "a"}) || o.Created.Year() != 2026 ||
		o.Position.String() != "cluster c1" || o.Spec.(*networking.ServiceEntry).GetResolution() != networking.ServiceEntry_DNS {
		t.Errorf("%+v", o)
	}

	// A malformed version keeps the last good one, and its problem names the object.
	bad := c.configured(entryKind(t), custom(t, strings.Replace(goodEntry, "DNS", "SOMEHOW", 1)))
	if bad.good || bad.object != nil || len(bad.problems) != 1 || !strings.HasPrefix(bad.problems[0].String(), "cluster c1: error: ServiceEntry shop/a: spec.resolution: ") {
		t.Fatalf("%+v", bad)
	}
	merged := mergeConfigured(good, bad).(*configured)
	if merged.object != good.object || len(merged.problems) != 1 {
		t.Errorf("%+v", merged)
	}
	if mergeConfigured(merged, c.configured(entryKind(t), custom(t, strings.Replace(goodEntry, "DNS", "SOMEHOW", 1)))) != content(merged) {
		t.Error("the same malformed version is a change")
	}
	healed := mergeConfigured(merged, c.configured(entryKind(t), custom(t, goodEntry))).(*configured)
	if healed.object != good.object || len(healed.problems) > 0 || !healed.good {
		t.Errorf("%+v", healed)
	}

	// What the API server changes by itself is no change.
	other := strings.NewReplacer(`"12"`, `"13"`, "manager: kubectl", "manager: other").Replace(goodEntry) + "status: {observedGeneration: 3}\n"
	if mergeConfigured(good, c.configured(entryKind(t), custom(t, other))) != content(good) {
		t.Error("a change of the metadata is a change")
	}
	moved := mergeConfigured(good, c.configured(entryKind(t), custom(t, strings.Replace(goodEntry, "canary", "other", 1)))).(*configured)
	if moved.revision != "other" {
		t.Errorf("%+v", moved)
	}
}

func TestDefinitionNames(t *testing.T) {
	for _, k := range api.Kinds() {
		want := "v1"
		switch k.Name { // these have no other
		case api.KindEnvoyFilter:
			want = "v1alpha3"
		case "WasmPlugin", "TrafficExtension":
			want = "v1alpha1"
		case "ProxyConfig":
			want = "v1beta1"
		}
		if len(k.Versions()) == 0 || k.Versions()[0] != want {
			t.Errorf("%s has the versions %v", k.Name, k.Versions())
		}
	}
	if got := definitionName(entryKind(t)); got != "serviceentries.networking.istio.io" {
		t.Error(got)
	}
	if configMap("") != "istio" || configMap("default") != "istio" || configMap("canary") != "istio-canary" {
		t.Error("names of ConfigMaps")
	}
}

// FuzzConfigured checks that no custom resource stops the conversion, and that an object without errors has a version.
func FuzzConfigured(f *testing.F) {
	data, err := yaml.YAMLToJSON([]byte(goodEntry))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": 1}, "spec": []}`))
	f.Add([]byte(`{"apiVersion": "v1", "kind": "List", "items": [{}], "metadata": {"labels": null}}`))
	k := entryKind(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var object map[string]any
		if json.Unmarshal(data, &object) != nil {
			return
		}
		u := &unstructured.Unstructured{Object: object}
		got := newConverter().configured(k, u)
		if got.good != (got.object != nil) || got.good == api.Failed(got.problems) {
			t.Errorf("good %v, object %v, problems %v", got.good, got.object, got.problems)
		}
	})
}
