package traffic

import "testing"

func TestLocality(t *testing.T) {
	for _, s := range []string{"a", "a/b/c", "a/*", "*", "a*", "a/b*"} {
		if reason := checkLocality(s); reason != "" {
			t.Errorf("%q: %s", s, reason)
		}
	}
	for _, s := range []string{"", "a/", "a/*/c", "a**", "*/a", "/a"} {
		if checkLocality(s) == "" {
			t.Errorf("%q passes", s)
		}
	}
}
