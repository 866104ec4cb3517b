package syntax

import (
	"strings"
	"testing"
)

// TestLua: good code has no reason, with the parts of the language that Envoy's LuaJIT adds, too. Bad code has the place of its first mistake.
func TestLua(t *testing.T) {
	for _, code := range []string{
		"", "-- nothing", "function envoy_on_request(handle)\n  handle:headers():add('a', \"b\")\nend",
		"local t = {[1] = 'a', b = 2; 3}\nfor i, v in ipairs(t) do if i > 1 then goto done end end\n::done::\nreturn #t",
		"local s = [==[ text ]] ]==]\nrepeat until s ~= nil\nreturn 0x10 + 1e3 .. s", "return '\\65\\n'", strings.Repeat("--x\n", 1000),
	} {
		if reason := Lua(code); reason != "" {
			t.Errorf("%q: %s", code, reason)
		}
	}
	for code, want := range map[string]string{
		"function":                      "ends too early",
		"function f()\n  retrun 1\nend": `line 2, column 10, near "1"`,
		"x = = 1":                       "line 1",
		"if a then":                     "ends too early",
		"return 'a":                     "ends too early",
	} {
		if reason := Lua(code); !strings.Contains(reason, want) {
			t.Errorf("%q: %q, want %q", code, reason, want)
		}
	}
}
