package push

import (
	"strings"
	"testing"
)

// TestSharedNodeIDIsAProblem checks that a node id is a problem as long as several connections have it, and that other proxies and the
// agent beside a proxy make none.
func TestSharedNodeIDIsAProblem(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	shared := func(count string) func(v *View) bool {
		return func(v *View) bool {
			n := 0
			for _, p := range v.Problems.All() {
				if p.Code == "proxy-id-shared" {
					n++
					if p.Field != web0 || !strings.HasPrefix(p.Reason, count+" connections ") {
						return false
					}
				}
			}
			return n == 1 && count != "" || n == 0 && count == ""
		}
	}
	a, _ := f.attach(web0, "")
	f.attach(strings.Replace(web0, "sidecar~", "agent~", 1), "")
	f.attach(strings.Replace(web0, "web-0", "web-1", 1), "")
	f.eventually("the proxies and no problem", func(v *View) bool { return v.Tables.Proxies.Len() == 3 && shared("")(v) })
	b, _ := f.attach(web0, "")
	f.eventually("a problem of two", shared("2"))
	c, _ := f.attach(web0, "")
	f.eventually("a problem of three", shared("3"))
	a.Close()
	f.eventually("a problem of the others", shared("2"))
	b.Close()
	f.eventually("no problem", func(v *View) bool { return shared("")(v) && v.Tables.Shared.Len() == 0 })
	c.Close()
	f.eventually("none connected", func(v *View) bool { return v.Tables.Proxies.Len() == 2 })
}
