package class_test

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestFork evaluates a second graph over a snapshot on another goroutine: the proxies' state at the snapshot's
// revision, and their state if a row were different, while the first graph continues.
func TestFork(t *testing.T) {
	w := meshtest.New(t)
	l := meshtest.Large{Services: 600}
	w.Put(l.Objects()...)
	p := meshtest.Node(t, "sidecar~10.1.1.1~web-0.shop~shop.svc.cluster.local", "")
	c := w.Connect(p)
	before := w.State(c)
	snapshot := w.Tables.DB.Snapshot()

	type states struct{ was, wouldBe *resource.State }
	found := make(chan states)
	edit := w.Batch(l.ServiceEntry(5, 77))
	go func() {
		defer close(found)
		tables, err := state.Fork(snapshot, state.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		g := query.New(tables.DB, query.Options{Strict: true})
		q := class.Define(g, tables)
		var s states
		s.was, _ = q.State.Get(g.Naive(), c)
		g.Commit(func(tx *store.Txn) { tables.Apply(tx, edit) })
		s.wouldBe, _ = q.State.Get(g.Glance(), c)
		found <- s
	}()
	for i := range 50 {
		w.Put(l.ServiceEntry(i, 99))
	}
	s, ok := <-found
	if !ok {
		return
	}
	differences := func(a, b *resource.State) (names []string) {
		for typ := range resource.Type(resource.Types) {
			for d := range resource.Diff(a.Layers(typ), b.Layers(typ)) {
				names = append(names, typ.String()+" "+d.Name)
			}
		}
		return names
	}
	if d := differences(before, s.was); len(d) > 0 {
		t.Errorf("the fork differs from what was in %v", d)
	}
	want := "outbound|80||" + l.Host(5)
	if d := differences(before, s.wouldBe); len(d) != 1 || d[0] != resource.Endpoint.String()+" "+want {
		t.Errorf("an edit in the fork changes %v, want the endpoints of %s", d, want)
	}
	if d := differences(before, w.State(c)); len(d) < 40 {
		t.Errorf("the mesh itself did not go on; it differs in %v", d)
	}
}
