package loop

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	classes "github.com/pilotmesh/pilot/internal/xds/class"
)

// TestFaultsWithEqualKeys checks that the fault of a cell is reported until it ends, even if another cell has the same key.
func TestFaultsWithEqualKeys(t *testing.T) {
	tables := state.New(state.Options{})
	g := query.New(tables.DB, query.Options{Strict: true})
	l := New(tables, g, classes.Define(g, tables), Settings{})
	report := func(cell query.ID, reason string) string {
		change := query.FaultChange{Cell: cell}
		if reason != "" {
			change.Fault = &query.Fault{Cell: cell, Query: "clusters", Key: "a b", Kind: query.Overread, Reason: reason}
		}
		l.updateFault(change)
		g.Commit(func(tx *store.Txn) {
			for _, note := range l.writes {
				note(tx)
			}
			l.writes = nil
		})
		row, _ := tables.Faults.Peek(connected.FaultKey{Query: "clusters", Key: "a b"})
		return row.Reason
	}
	for _, step := range []struct {
		cell         query.ID
		reason, want string
	}{
		{1, "one", "one"},
		{2, "two", "one"},
		{1, "", "two"},
		{2, "other", "other"},
		{1, "one", "other"},
		{1, "", "other"},
		{2, "", ""},
	} {
		if got := report(step.cell, step.reason); got != step.want {
			t.Errorf("after cell %d has %q the row says %q, want %q", step.cell, step.reason, got, step.want)
		}
	}
	if n := len(l.faults.rows) + len(l.faults.cells); n > 0 {
		t.Errorf("%d things are kept", n)
	}
}
