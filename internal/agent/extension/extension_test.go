package extension

import (
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/internal/agent/wasm"
)

const (
	httpType    = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"
	networkType = "type.googleapis.com/envoy.extensions.filters.network.wasm.v3.Wasm"
	remote      = `"code":{"remote":{"httpUri":{"uri":"oci://a/b:1","timeout":"30s","cluster":"_"},"sha256":"nil"}}`
	environment = `"environmentVariables":{"keyValues":{"ISTIO_META_WASM_IMAGE_PULL_SECRET":"hidden","ISTIO_META_WASM_IMAGE_PULL_POLICY":"Always",
		"ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION":"7","MINE":"yes"}}`
)

// resource is an extension from the JSON of its configuration.
func resource(t *testing.T, config string) *anypb.Any {
	t.Helper()
	whole := &corev3.TypedExtensionConfig{}
	if err := protojson.Unmarshal([]byte(`{"name":"x","typedConfig":`+config+`}`), whole); err != nil {
		t.Fatal(err)
	}
	packed, err := anypb.New(whole)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// text is the resource for Envoy as JSON.
func text(t *testing.T, a *anypb.Any, err error) string {
	t.Helper()
	whole := &corev3.TypedExtensionConfig{}
	if err == nil {
		err = proto.Unmarshal(a.GetValue(), whole)
	}
	if err != nil || whole.GetName() != "x" {
		t.Fatalf("%v, %v", whole, err)
	}
	return strings.Join(strings.Fields(protojson.Format(whole)), "")
}

// TestRead checks which module a filter wants, in whatever form the filter comes, and that no variable that is meant for the agent is left.
func TestRead(t *testing.T) {
	plain := `{"name":"p","rootId":"r","vmConfig":{` + remote + `,` + environment + `,"runtime":"envoy.wasm.runtime.v8"},"failurePolicy":"FAIL_OPEN"}`
	for name, config := range map[string]string{
		"http":    `{"@type":"` + httpType + `","config":` + plain + `}`,
		"network": `{"@type":"` + networkType + `","config":` + plain + `}`,
		"udpa":    `{"@type":"type.googleapis.com/udpa.type.v1.TypedStruct","type_url":"` + httpType + `","value":{"config":` + plain + `,"new":1}}`,
		"xds":     `{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","type_url":"` + networkType + `","value":{"config":` + plain + `}}`,
	} {
		f := Read(resource(t, config))
		if f == nil || f.Name != "x" || !f.Open || f.Wait != 30*time.Second {
			t.Fatalf("%s: %+v", name, f)
		}
		if m := f.Module; m.URL != "oci://a/b:1" || m.SHA256 != "" || m.Version != "7" || m.Policy != wasm.Always || string(m.Secret) != "hidden" {
			t.Errorf("%s: %+v", name, m)
		}
		with, err := f.With("/f.wasm")
		got := text(t, with, err)
		if !strings.Contains(got, `"local":{"filename":"/f.wasm"}`) || !strings.Contains(got, "MINE") || strings.Contains(got, "ISTIO_META") || strings.Contains(got, "hidden") {
			t.Errorf("%s: %s", name, got)
		}
		if File(with) != "/f.wasm" {
			t.Errorf("%s: %q", name, File(with))
		}
	}
}

// TestUnchanged checks that resources that Envoy can use are not changed.
func TestUnchanged(t *testing.T) {
	for name, config := range map[string]string{
		"other":     `{"@type":"type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"}`,
		"local":     `{"@type":"` + httpType + `","config":{"vmConfig":{"code":{"local":{"filename":"/f"}}}}}`,
		"no plugin": `{"@type":"` + networkType + `"}`,
	} {
		if f := Read(resource(t, config)); f != nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
	garbage := &anypb.Any{TypeUrl: URL, Value: []byte("\xff")}
	if Read(garbage) != nil || File(garbage) != "" || Read(&anypb.Any{TypeUrl: "other"}) != nil || File(nil) != "" {
		t.Error("garbage is an extension")
	}
	// A module that needs no fetch, but a variable for the agent.
	f := Read(resource(t, `{"@type":"`+httpType+`","config":{"vmConfig":{"code":{"local":{"filename":"/f"}},"environmentVariables":{"keyValues":{"ISTIO_META_X":"hidden"}}}}}`))
	if f == nil || f.Module != nil {
		t.Fatalf("%+v", f)
	}
	with, err := f.With("")
	if got := text(t, with, err); strings.Contains(got, "environment") || !strings.Contains(got, `"/f"`) {
		t.Error(got)
	}
}

// TestStandIn checks the filter that replaces a Wasm filter without its module.
func TestStandIn(t *testing.T) {
	for config, want := range map[string]string{
		`{"@type":"` + httpType + `","config":{"vmConfig":{` + remote + `}}}`:                               `filters.http.rbac.v3.RBAC","rules":{}}`,
		`{"@type":"` + httpType + `","config":{"vmConfig":{` + remote + `},"failOpen":true}}`:               `filters.http.rbac.v3.RBAC"}`,
		`{"@type":"` + networkType + `","config":{"vmConfig":{` + remote + `}}}`:                            `filters.network.rbac.v3.RBAC","rules":{},"statPrefix":"wasm_module_missing."}`,
		`{"@type":"` + networkType + `","config":{"vmConfig":{` + remote + `},"failOpen":true}}`:            `filters.network.rbac.v3.RBAC","statPrefix":"wasm_module_missing."}`,
		`{"@type":"` + httpType + `","config":{"vmConfig":{` + remote + `},"failurePolicy":"FAIL_RELOAD"}}`: `filters.http.rbac.v3.RBAC","rules":{}}`,
	} {
		with, err := Read(resource(t, config)).StandIn()
		if got := text(t, with, err); !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// FuzzRead: whatever the control plane sends, the resource for Envoy has no variable for the agent.
func FuzzRead(f *testing.F) {
	f.Add([]byte("x"), []byte("y"), 0)
	types := []string{httpType, networkType, "type.googleapis.com/udpa.type.v1.TypedStruct", "type.googleapis.com/xds.type.v3.TypedStruct"}
	f.Fuzz(func(t *testing.T, config, whole []byte, of int) {
		body, err := proto.Marshal(&corev3.TypedExtensionConfig{Name: "x", TypedConfig: &anypb.Any{TypeUrl: types[uint(of)%4], Value: config}})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{body, whole} {
			File(&anypb.Any{TypeUrl: URL, Value: b})
			got := Read(&anypb.Any{TypeUrl: URL, Value: b})
			if got == nil {
				continue
			}
			with, err := got.With("/f")
			if again := Read(with); err != nil || again != nil {
				t.Errorf("%v, %v", again, err)
			}
		}
	})
}
