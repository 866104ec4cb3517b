package state_test

import (
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
)

func apply(t *state.Tables, b source.Batch) store.Revision {
	tx := t.DB.Begin()
	t.Apply(tx, b)
	rev, _ := tx.Commit()
	return rev
}

func put(from string, objects ...*api.Object) source.Batch {
	b := source.Batch{Source: from, Synced: true}
	for _, o := range objects {
		b.Events = append(b.Events, source.Event{Key: o.Key, Object: o})
	}
	return b
}

// The same again writes nothing, and deleting everything leaves nothing.
func TestApplyIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tables := state.New(state.Options{})
		random := meshtest.Random{T: rt}
		latest := map[api.Key]*api.Object{}
		for range rapid.IntRange(1, 12).Draw(rt, "objects") {
			o := random.Object()
			latest[o.Key] = o
			apply(tables, put("s", o))
		}
		var all []*api.Object
		for _, o := range latest {
			all = append(all, o)
		}
		before := tables.DB.Revision()
		if got := apply(tables, put("s", all...)); got != before {
			rt.Errorf("applying the same again made revision %d of %d", got, before)
		}
		var gone source.Batch
		gone.Source = "s"
		for k := range latest {
			gone.Events = append(gone.Events, source.Event{Key: k})
		}
		apply(tables, gone)
		for name, n := range map[string]int{
			"objects": tables.Objects.Len(), "positions": tables.Positions.Len(), "claims": tables.Claims.Len(),
			"services": tables.Services.Len(), "endpoints": tables.Endpoints.Len(), "workloads": tables.Workloads.Len(),
			"virtualServices": tables.VirtualServices.Len(), "destinationRules": tables.DestinationRules.Len(),
			"sidecars": tables.Sidecars.Len(), "duplicates": tables.Duplicates.Len(),
		} {
			if n != 0 {
				rt.Errorf("%d rows are left in %s", n, name)
			}
		}
	})
}

func entry(t *testing.T, address string) *api.Object {
	t.Helper()
	o, err := api.Object{Key: api.Key{Namespace: "a", Name: "x"}, Spec: &networking.WorkloadEntry{Address: address}}.Seal()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestFirstSourceWins(t *testing.T) {
	tables := state.New(state.Options{Sources: []string{"first", "second"}})
	one, two := entry(t, "10.0.0.1"), entry(t, "10.0.0.2")
	check := func(want string, holders int) {
		t.Helper()
		w, _ := tables.Workloads.Peek(one.Key)
		h, _ := tables.Duplicates.Peek(one.Key)
		if w.Address != want || len(h) != holders {
			t.Errorf("address %q, held by %q; want %q, %d", w.Address, h, want, holders)
		}
	}
	apply(tables, put("second", two))
	check("10.0.0.2", 0)
	apply(tables, put("first", one))
	check("10.0.0.1", 2)
	apply(tables, source.Batch{Source: "first", Events: []source.Event{{Key: one.Key}}})
	check("10.0.0.2", 0)
	if !tables.Synced("first", "second") || tables.Synced("third") {
		t.Error("sources are not known to have listed")
	}
}

func TestPositionsAndProblemsAreApart(t *testing.T) {
	tables := state.New(state.Options{})
	o := entry(t, "10.0.0.1")
	apply(tables, put("s", o))
	moved := *o
	moved.Position = api.Position{File: "x.yaml", Line: 7}
	b := put("s", &moved)
	b.Problems = []source.ProblemEvent{{Problem: api.Problem{Object: o.Key, Severity: api.Warning, Reason: "r"}}}
	tx := tables.DB.Begin()
	tables.Apply(tx, b)
	if _, touched := tx.Commit(); len(touched) != 4 { // the object of the source, the position, the problem, and the sources with problems
		t.Errorf("%d rows changed", len(touched))
	}
	if p, _ := tables.Positions.Peek(o.Key); p.Line != 7 {
		t.Errorf("position is %v", p)
	}
}

func TestMeshDefaultsResplit(t *testing.T) {
	tables := state.New(state.Options{})
	o, err := api.Object{Key: api.Key{Namespace: "a", Name: "x"}, Spec: &networking.ServiceEntry{Hosts: []string{"One.com"}}}.Seal()
	if err != nil {
		t.Fatal(err)
	}
	layers := func() []string {
		c, _ := tables.Claims.Peek(o.Key)
		return c.Layers
	}
	apply(tables, put("s", o))
	if got := layers(); len(got) != 1 || got[0] != "" {
		t.Errorf("seen by %q", got)
	}
	mesh := &meshconfig.MeshConfig{DefaultServiceExportTo: []string{"."}, RootNamespace: "root"}
	apply(tables, source.Batch{Source: "s", Mesh: mesh})
	if got := layers(); len(got) != 1 || got[0] != "a" {
		t.Errorf("seen by %q", got)
	}
	before := tables.DB.Revision()
	if got := apply(tables, source.Batch{Source: "s", Mesh: mesh}); got != before {
		t.Error("the same mesh settings again made a revision")
	}
}
