package loop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
)

// TestSharedNodeIDIsAProblem checks that a node id is a problem as long as several proxies have it, at different addresses or with
// different ports. Several connections of one proxy make no problem, as in a hot restart, and neither do other proxies and the agent beside a proxy.
func TestSharedNodeIDIsAProblem(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	shared := func(proxies int) func(v *View) bool {
		return func(v *View) bool {
			n := 0
			for _, p := range v.Problems.All() {
				if p.Code == "proxy-id-shared" {
					n++
					if p.Field != web0 || !strings.HasPrefix(p.Reason, fmt.Sprintf("%d proxies have this node id", proxies)) {
						return false
					}
				}
			}
			return n == min(proxies, 1)
		}
	}
	attach := func(id, from, metadata string) *Connection {
		node := meshtest.Node(t, id, metadata)
		node.From = from
		c, err := f.Attach(node, newStream())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	f.attach(strings.Replace(web0, "web-0", "web-1", 1), "") // the fixture has listed everything then
	a := attach(web0, "10.1.0.1", "")
	attach(strings.Replace(web0, "sidecar~", "agent~", 1), "10.1.0.7", "")
	again := attach(web0, "10.1.0.1", "")
	f.eventually("the proxies and no problem", func(v *View) bool { return v.Tables.Proxies.Len() == 4 && shared(0)(v) })
	b := attach(web0, "10.1.0.2", "")
	f.eventually("a problem of two", shared(2))
	c := attach(web0, "10.1.0.2", `{"ENVOY_STATUS_PORT": 9021}`)
	f.eventually("a problem of three", shared(3))
	a.Close()
	c.Close()
	f.eventually("a problem of the others", shared(2))
	again.Close()
	f.eventually("no problem", func(v *View) bool { return shared(0)(v) && v.Tables.Shared.Len() == 0 })
	b.Close()
	f.eventually("none connected", func(v *View) bool { return v.Tables.Proxies.Len() == 2 })
}
