package class_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// A proxy gets the configuration of the extensions that apply to it, and of no other.
func TestExtensionConfigurations(t *testing.T) {
	w, p := meshtest.New(t), meshtest.Node(t, "sidecar~10.1.0.1~web-0.shop~shop.svc.cluster.local", `{"LABELS":{"app":"web"}}`)
	w.Connect(p)
	w.Apply(`
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: plugin, namespace: shop}
spec:
  url: https://modules.test/plugin.wasm
  sha256: "0123456789012345678901234567890123456789012345678901234567890123"
  imagePullPolicy: Always
  pluginName: root
  pluginConfig: {b: [1, "two", null], a: {c: true}}
  failStrategy: FAIL_OPEN
  vmConfig: {env: [{name: OWN, value: own}, {name: TRUST_DOMAIN, valueFrom: HOST}, {name: ISTIO_META_X, value: stolen}]}
---
apiVersion: extensions.istio.io/v1alpha1
kind: TrafficExtension
metadata: {name: image, namespace: istio-system}
spec: {selector: {matchLabels: {app: web}}, wasm: {url: "registry.test/image:1", type: NETWORK, failStrategy: FAIL_RELOAD}}
---
apiVersion: extensions.istio.io/v1alpha1
kind: TrafficExtension
metadata: {name: dotted.name, namespace: shop}
spec: {lua: {inlineCode: "function envoy_on_request(h) end"}}
---
apiVersion: extensions.istio.io/v1alpha1
kind: TrafficExtension
metadata: {name: elsewhere, namespace: shop}
spec: {selector: {matchLabels: {app: other}}, wasm: {url: "file:///opt/elsewhere.wasm"}}
`)
	for name, want := range map[string][]string{
		"shop.plugin~istio-translated-wasmplugin": {
			"http.wasm.v3.Wasm", "https://modules.test/plugin.wasm", "0123456789", "FAIL_OPEN", "root_id: root", `{"a":{"c":true},"b":[1,"two",null]}`, "OWN: own",
			"TRUST_DOMAIN", "WASM_IMAGE_PULL_POLICY: Always",
		},
		"istio-system.image": {"network.wasm.v3.Wasm", "oci://registry.test/image:1", "sha256: nil", "FAIL_RELOAD"},
		"shop.dotted.name":   {"lua.v3.Lua", "envoy_on_request"},
		"shop.elsewhere":     {"none: "},
		"shop.plugin":        {"none: "},
		"shop":               {"none: "},
	} {
		key := connected.WantKey{Connection: p.ID, ResourceKey: connected.ResourceKey{
			Type: uint8(resource.Extension), Name: "extensions.istio.io/trafficextension/" + name,
		}}
		w.Commit(func(tx *store.Txn) { w.Tables.Wants.Set(tx, key, connected.Want{Proxy: p.ID}) })
		var got class.Answer
		w.Queries.Answers.Observe(key, func(a class.Answer, _ bool) { got = a })
		w.Commit(func(*store.Txn) {})
		text := answerText(t, got)
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q is missing in\n%s", name, part, text)
			}
		}
		if strings.Contains(text, "stolen") {
			t.Errorf("%s has a variable of agents:\n%s", name, text)
		}
	}
}

func answerText(t *testing.T, a class.Answer) string {
	t.Helper()
	if a.Resource == nil {
		return "none: " + a.Reason
	}
	return meshtest.YAML(t, a.Resource)
}

// extensionChanges are changes of extensions.
func extensionChanges() []change {
	apply := func(namespace, name, selector, spec string) func(*meshtest.World, meshtest.Large) {
		return func(w *meshtest.World, _ meshtest.Large) {
			w.Apply(fmt.Sprintf(`
apiVersion: extensions.istio.io/v1alpha1
kind: TrafficExtension
metadata: {name: %s, namespace: %s}
spec: {%s%s}
`, name, namespace, selector, spec))
		}
	}
	code := func(n int) string {
		return fmt.Sprintf(`lua: {inlineCode: "function envoy_on_request(h) local x = %d end"}`, n)
	}
	const one = "selector: {matchLabels: {app: app4}}, "
	return []change{
		{"code of the extension of one workload", apply("ns-04", "one", one, code(2))},
		{"phase of the extension of one workload", apply("ns-04", "one", one, "phase: AUTHN, "+code(2))},
		{"extension for no workload", apply("ns-04", "none", "selector: {matchLabels: {app: none}}, ", code(1))},
		{"extension of a namespace added", apply("ns-04", "all", "", code(1))},
		{"code of the extension of a namespace", apply("ns-04", "all", "", code(2))},
		{"extension of the mesh added", apply("istio-system", "all", "", code(1))},
		{"code of the extension of the mesh", apply("istio-system", "all", "", code(2))},
		{"extension of the mesh for servers only", apply("istio-system", "all", "", "match: [{mode: SERVER}], "+code(2))},
	}
}

// An edit of the code of an extension changes no listener. An extension for one workload costs the listeners of its class.
func TestCostOfExtensions(t *testing.T) {
	same(t, "testdata/cost-extensions.txt", extensionChanges(), func(meshtest.Large) []*api.Object {
		return meshtest.Parse(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: own, namespace: ns-04}
spec:
  hosts: [own.example]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.250.0.4, labels: {app: app4}}]
---
apiVersion: extensions.istio.io/v1alpha1
kind: TrafficExtension
metadata: {name: one, namespace: ns-04}
spec: {selector: {matchLabels: {app: app4}}, lua: {inlineCode: "function envoy_on_request(h) local x = 1 end"}}
`)
	})
}
