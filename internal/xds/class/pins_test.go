package class_test

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/store"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// A pin shows what is held until the content is another than the rejected one; everything else flows.
func TestPins(t *testing.T) {
	w, l := meshtest.New(t), meshtest.Large{Services: 20}
	w.Put(l.Objects()...)
	c := w.Connect(meshtest.Node(t, "sidecar~10.1.1.1~web-0.ns-01~ns-01.svc.cluster.local", ""))
	pinned := c
	pinned.Pins = "set"
	w.Watch(pinned)
	cluster := "outbound|80|v1|" + l.Host(10)
	good := w.State(c)
	w.Put(l.DestinationRule(10, 5, 2), l.VirtualService(10, 50))
	bad := w.State(c)
	pieceOf := func(s *resource.State) *resource.Piece {
		rc, _ := s.Get(resource.Route, "80")
		p, ok := rc.Pieces().Get("local.cluster.svc.ns-10.svc-00010:80")
		if !ok {
			t.Fatal("no such virtual host")
		}
		return p
	}
	held, _ := good.Get(resource.Cluster, cluster)
	rejected, _ := bad.Get(resource.Cluster, cluster)
	gone := "outbound|80||" + l.Host(3)
	other, _ := bad.Get(resource.Cluster, gone)
	w.Commit(func(tx *store.Txn) {
		w.Tables.Pins.Set(tx, "set", []state.Pin{
			{Type: uint8(resource.Cluster), Name: cluster, Rejected: rejected.ContentHash(), Held: held},
			{Type: uint8(resource.Cluster), Name: gone, Rejected: other.ContentHash()},
			{Type: uint8(resource.Route), Name: "80", Piece: pieceOf(bad).Name(), Rejected: pieceOf(bad).ContentHash(), Held: pieceOf(good)},
		})
	})
	s := w.State(pinned)
	if got, _ := s.Get(resource.Cluster, cluster); got != held {
		t.Error("the rejected cluster is not held back")
	}
	if _, ok := s.Get(resource.Cluster, gone); ok {
		t.Error("a cluster with nothing to hold is not hidden")
	}
	if pieceOf(s) != pieceOf(good) {
		t.Error("the rejected virtual host is not held back")
	}
	if w.State(c) != bad {
		t.Error("others are held back too")
	}
	w.Put(l.DestinationRule(10, 6, 2), l.VirtualService(10, 60))
	for class, s := range map[proxy.Class]*resource.State{c: w.State(c), pinned: w.State(pinned)} {
		if got, _ := s.Get(resource.Cluster, cluster); got == held || got == rejected {
			t.Errorf("class %+v: new content does not flow", class)
		}
		if p := pieceOf(s); p == pieceOf(good) || p == pieceOf(bad) {
			t.Errorf("class %+v: a new virtual host does not flow", class)
		}
	}
	if _, ok := w.State(pinned).Get(resource.Cluster, gone); ok {
		t.Error("the other pin was lifted")
	}
	w.Check()
}
