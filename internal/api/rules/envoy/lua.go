package envoy

import (
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
)

// LuaIn returns the code in Lua that filters have which a value configures, in no particular order.
func LuaIn(value *structpb.Struct) (list []string) {
	visit := func(_ string, v *structpb.Value) {
		if s := v.GetStructValue(); isLua(s) {
			list = append(list, codeIn(s)...)
		}
		for _, item := range v.GetListValue().GetValues() {
			if s := item.GetStructValue(); isLua(s) {
				list = append(list, codeIn(s)...)
			}
		}
	}
	walk(value, visit)
	return list
}

// isLua reports whether a value configures a filter with code in Lua, for all requests or for the requests of a route.
func isLua(s *structpb.Struct) bool {
	for _, key := range []string{"@type", "type_url", "typeUrl"} {
		if strings.HasPrefix(nameOf(s.GetFields()[key].GetStringValue()), "envoy.extensions.filters.http.lua.") {
			return true
		}
	}
	return false
}

// codeIn returns the code that the configuration of a filter has as text.
func codeIn(s *structpb.Struct) (list []string) {
	walk(s, func(key string, v *structpb.Value) {
		switch key {
		case "inline_code", "inlineCode", "inline_string", "inlineString":
			if text := v.GetStringValue(); text != "" {
				list = append(list, text)
			}
		}
	})
	return list
}
