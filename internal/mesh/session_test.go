package mesh

import "testing"

func TestSessionOf(t *testing.T) {
	for _, c := range []struct {
		cookie, header string
		want           Session
	}{
		{"", "", Session{}},
		{"c", "", Session{Cookie: "c", Path: "/"}},
		{"c:/shop", "h", Session{Cookie: "c", Path: "/shop"}},
		{"", "h", Session{Header: "h"}},
	} {
		labels := map[string]string{SessionLabel: c.cookie, SessionHeaderLabel: c.header}
		if got := SessionOf(labels); got != c.want {
			t.Errorf("%q, %q: %+v, want %+v", c.cookie, c.header, got, c.want)
		}
	}
	if got := SessionOf(nil); got != (Session{}) {
		t.Errorf("no labels: %+v", got)
	}
}
