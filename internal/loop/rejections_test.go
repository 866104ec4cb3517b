package loop

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// large starts a loop over a mesh of services.
func large(t *testing.T, services int) (*fixture, meshtest.Large) {
	f, l := start(t, Settings{}), meshtest.Large{Services: services}
	b := source.Batch{Source: "test", Synced: true}
	for _, o := range l.Objects() {
		b.Events = append(b.Events, source.Event{Key: o.Key, Object: o})
	}
	f.Apply(b)
	return f, l
}

func node(i int) string {
	return fmt.Sprintf("sidecar~10.1.0.%d~w-%d.shop~shop.svc.cluster.local", i%250+1, i)
}

// clusters are pins of the first clusters of a state that are of services.
func clusters(t *testing.T, st *resource.State, l meshtest.Large, n int) (pins []reject.Pin) {
	t.Helper()
	for i := range l.Services {
		name := "outbound|80||" + l.Host(i)
		if r, ok := st.Get(resource.Cluster, name); ok && len(pins) < n {
			pins = append(pins, reject.Pin{Type: resource.Cluster, Name: name, Rejected: r.ContentHash()})
		}
	}
	if len(pins) < n {
		t.Fatalf("there are only %d clusters", len(pins))
	}
	return pins
}

// cost is the cells that run when an endpoint of a service changes.
func (f *fixture) cost(l meshtest.Large, service, last int) map[string]int {
	f.t.Helper()
	o := l.ServiceEntry(service, last)
	f.Apply(source.Batch{Source: "test", Synced: true, Events: []source.Event{{Key: o.Key, Object: o}}})
	f.settled(func(*View) {})
	f.settled(func(*View) {})
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.commits) - 1; i >= 0; i-- {
		if f.commits[i].Objects["test"] == 1 {
			return f.commits[i].Cells
		}
	}
	return nil
}

func (f *fixture) quiet(what string) {
	f.t.Helper()
	f.eventually(what, func(v *View) bool { return !v.Graph.Pending() && !f.hasLookups() })
}

// rejections is the number of problems about rejections.
func rejections(v *View) (n int) {
	for _, p := range v.Problems.All() {
		if strings.Contains(p.Reason, " rejected ") {
			n++
		}
	}
	return n
}

// TestEqualRejectionsShareTheLookup checks that the objects of content that many proxies rejected are looked up once, and that
// later changes of other objects run no additional cells.
func TestEqualRejectionsShareTheLookup(t *testing.T) {
	const proxies, each = 20, 10
	f, l := large(t, 100)
	var conns []*Connection
	var st *resource.State
	for i := range proxies {
		c, s := f.attach(node(i), "")
		conns = append(conns, c)
		st = s.wait(t, "the clusters", has(resource.Cluster, "outbound|80||"+l.Host(1)))
	}
	f.quiet("all is built")
	before := f.cost(l, 90, 10)
	for _, c := range conns {
		c.Pin(clusters(t, st, l, each), "no such thing")
	}
	f.quiet("all lookups are done")
	if after := f.cost(l, 90, 11); !maps.Equal(before, after) {
		t.Errorf("an endpoint's change runs %v, and ran %v before", after, before)
	}
	f.settled(func(v *View) {
		live := v.Graph.Cells()
		if live["rejected"] != each || v.Tables.Origins.Len() != each || v.Tables.Rejections.Len() != proxies*each {
			t.Errorf("%d cells for %d origins and %d rejections", live["rejected"], v.Tables.Origins.Len(), v.Tables.Rejections.Len())
		}
		shared := 0
		for _, p := range v.Problems.All() {
			if strings.Contains(p.Reason, "and others rejected") {
				shared++
			}
		}
		if shared < each {
			t.Errorf("%d problems say that several proxies rejected something, want at least %d", shared, each)
		}
		if held := v.Queries.ActiveRejections(v.Graph.Glance(), conns[3].ID()); len(held) != each || len(held[0].Objects) == 0 {
			t.Errorf("held back from one proxy: %v", held)
		}
	})
	for _, c := range conns {
		c.Close()
	}
	f.eventually("nothing is kept", func(v *View) bool {
		return v.Tables.Rejections.Len()+v.Tables.Origins.Len()+rejections(v) == 0 && f.rejections.total == 0 && len(f.rejections.nodes) == 0
	})
}

// TestRejectedPiece checks that the problem of a rejected virtual host names it, and that a change of another virtual host does
// not run its cell.
func TestRejectedPiece(t *testing.T) {
	f, l := large(t, 100)
	c, s := f.attach(node(0), "")
	routes, _ := s.wait(t, "routes", has(resource.Route, "80")).Get(resource.Route, "80")
	var pin reject.Pin
	for name, piece := range routes.Pieces().All() {
		if strings.Contains(string(name), "svc-00010") {
			pin = reject.Pin{Type: resource.Route, Name: "80", Piece: string(name), Rejected: piece.ContentHash()}
		}
	}
	c.Pin([]reject.Pin{pin}, "no such route")
	reported := func(v *View) bool {
		for _, p := range v.Problems.All() {
			if strings.Contains(p.Field, `virtual host "`+l.Host(10)) && strings.Contains(p.Reason, "no such route") {
				return true
			}
		}
		return false
	}
	f.eventually("a problem of the virtual host", reported)
	f.quiet("all lookups are done")
	put := func(service, share int) map[string]int {
		o := l.VirtualService(service, share)
		f.Apply(source.Batch{Source: "test", Synced: true, Events: []source.Event{{Key: o.Key, Object: o}}})
		f.settled(func(*View) {})
		f.settled(func(*View) {})
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.commits[len(f.commits)-1].Cells
	}
	if cells := put(20, 33); cells["rejected"]+cells["shown"] != 0 || cells["virtualHost"] == 0 {
		t.Errorf("routes of another host ran %v", cells)
	}
	if cells := put(10, 33); cells["rejected"] != 1 {
		t.Errorf("routes of the host ran %v", cells)
	}
	f.settled(func(v *View) {
		if reported(v) {
			t.Error("the problem outlives the content")
		}
	})
}

// TestHostileStream checks that a client that rejects as much as the protocol allows has a bounded number of rows and replaces
// no rows of other clients.
func TestHostileStream(t *testing.T) {
	f, l := large(t, 400)
	honest, s := f.attach(node(1), "")
	st := s.wait(t, "the clusters", has(resource.Cluster, "outbound|80||"+l.Host(1)))
	honest.Pin(clusters(t, st, l, 1), "no such thing")
	for round := range 3 {
		hostile, h := f.attach(node(2), "")
		h.wait(t, "the clusters", has(resource.Cluster, "outbound|80||"+l.Host(1)))
		var pins []reject.Pin
		for i := range 4096 {
			pins = append(pins, reject.Pin{Type: resource.Cluster, Name: fmt.Sprint("c", i), Rejected: omap.Sum([]byte{byte(i), byte(i >> 8)})})
		}
		for i := range pins { // each with a response of its own
			hostile.Pin(pins[i:i+1], "no")
		}
		hostile.Pin(pins, "no")
		f.settled(func(v *View) {
			if n := v.Tables.Rejections.Len(); n != 1+maxOfNode {
				t.Errorf("round %d: %d rejections are rows, want %d", round, n, 1+maxOfNode)
			}
		})
		hostile.Close()
	}
	f.eventually("only the honest one's is left", func(v *View) bool {
		return v.Tables.Rejections.Len() == 1 && v.Tables.Origins.Len() == 1 && rejections(v) > 0
	})
}

// TestRejectionsAreReplacedFairly checks which rejection is replaced when there are too many: one of the node with most
// rejections, preferably of content that others rejected, too.
func TestRejectionsAreReplacedFairly(t *testing.T) {
	g := newRejectionIndex()
	content := func(i int) connected.RejectedContent {
		return connected.RejectedContent{Rejectable: connected.Rejectable{Name: fmt.Sprint("c", i)}}
	}
	reject := func(c *connection, what connected.RejectedContent) (replaced rejection, full bool) {
		if replaced, full = g.toReplace(c.node); full {
			g.remove(replaced)
		}
		g.add(rejection{c, what}, "")
		return replaced, full
	}
	join := func(node string) *connection {
		return &connection{node: node, class: &class{}, rejected: map[connected.RejectedContent]struct{}{}}
	}
	worst := join("worst")
	reject(worst, content(1000)) // No other node rejects this content.
	for j := 1; j < maxOfNode; j++ {
		reject(worst, content(j))
	}
	for i := 0; g.total < maxRejections; i++ {
		c := join(fmt.Sprint("n", i))
		for j := 1; j < maxOfNode && g.total < maxRejections; j++ {
			reject(c, content(j))
		}
	}
	late := join("late")
	replaced, full := reject(late, content(2000))
	if !full || replaced.conn != worst || replaced.what != content(1) {
		t.Errorf("replaced %v of %v, want the oldest of the node with most that others rejected, too", replaced.what, replaced.conn.node)
	}
	for j := range 100 {
		if r, full := reject(late, content(3000+j)); !full || r.conn == late {
			t.Fatalf("rejection %d of a node with few replaced one of that node", j)
		}
	}
	if g.total != maxRejections {
		t.Errorf("%d rejections, want %d", g.total, maxRejections)
	}
	g = newRejectionIndex()
	first, second := join("node"), join("node")
	for j := range maxOfNode {
		reject([]*connection{first, second}[j%2], content(j))
	}
	if replaced, full = reject(second, content(9999)); !full || replaced.conn != first || replaced.what != content(0) {
		t.Errorf("at the limit of a node, replaced %v of %v, want its oldest", replaced.what, replaced.conn.node)
	}
}
