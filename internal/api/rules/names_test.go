package rules

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

func TestTexts(t *testing.T) {
	for _, c := range []struct {
		name      string
		check     func(string) string
		good, bad []string
	}{
		{"checkDefaultEndpoint", syntax.DefaultEndpoint, []string{"127.0.0.1:1", "[::]:1", ":1", "unix:///a"}, []string{"127.0.0.1", "a:1", "127.0.0.1:0", "unix://a"}},
		{"checkLocality", checkLocality, []string{"a", "a/b/c", "a/*", "*", "a*", "a/b*"}, []string{"", "a/", "a/*/c", "a**", "*/a", "/a"}},
		{"backendService", syntax.BackendService, []string{"a.b", "192.0.2.1", "a/b.c", "*/a.b"}, []string{"", "*.a", "a/b", "a_b/c.d", "a/*b.c"}},
	} {
		for _, s := range c.good {
			if reason := c.check(s); reason != "" {
				t.Errorf("%s(%q): %s", c.name, s, reason)
			}
		}
		for _, s := range c.bad {
			if c.check(s) == "" {
				t.Errorf("%s(%q) passes", c.name, s)
			}
		}
	}
}
