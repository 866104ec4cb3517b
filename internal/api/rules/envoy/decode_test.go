package envoy

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// The configuration of an extension is a message if it is linked, however it is written, and a tree otherwise.
func TestDecode(t *testing.T) {
	const lua, unlinked = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua", "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation"
	for name, c := range map[string]struct{ value, want string }{
		"message":  {`{"name":"a","typed_config":{"@type":"` + lua + `","stat_prefix":"s","unknown":1}}`, `{"name":"a","typedConfig":{"@type":"` + lua + `","statPrefix":"s"}}`},
		"unlinked": {`{"name":"a","typed_config":{"@type":"` + unlinked + `","x":{"y":1}}}`, `{"name":"a","typedConfig":{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","typeUrl":"` + unlinked + `","value":{"x":{"y":1}}}}`},
		"tree": {`{"name":"a","typed_config":{"@type":"type.googleapis.com/udpa.type.v1.TypedStruct","type_url":"` + lua + `","value":{"stat_prefix":"s"}}}`,
			`{"name":"a","typedConfig":{"@type":"` + lua + `","statPrefix":"s"}}`},
		"tree that is not the message": {`{"name":"a","typed_config":{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","type_url":"` + lua + `","value":{"stat_prefix":[1]}}}`,
			`{"name":"a","typedConfig":{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","typeUrl":"` + lua + `","value":{"stat_prefix":[1]}}}`},
		"wrong type": {`{"name":[]}`, "is no HttpFilter of Envoy's API"},
	} {
		var value structpb.Struct
		if err := protojson.Unmarshal([]byte(c.value), &value); err != nil {
			t.Fatal(err)
		}
		m, err := Decode("HTTP_FILTER", &value)
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		got, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.ReplaceAll(strings.ReplaceAll(string(got), `", "`, `","`), `": `, `":`); strings.ReplaceAll(text, `, "`, `,"`) != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if _, err := Decode("ENDPOINT", &structpb.Struct{}); err == nil {
		t.Error("an object that does not exist is decoded")
	}
}
