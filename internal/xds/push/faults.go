package push

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/store"
	classes "github.com/pilotmesh/pilot/internal/xds/class"
)

// lookups is how many faults or rejections are looked into before the input is looked at again: about a millisecond.
const lookups = 100

// maxBlamed bounds at how many objects one fault is told.
const maxBlamed = 50

// faults are what the graph told about cells and is no row yet. A fault becomes a row, and the row a problem of the objects that
// the cell had read: a bug must not be silent, and must not cost more than once.
type faults struct {
	waiting []query.FaultChange
	rows    map[query.ID]faultRow
	// cells are those with a row of a key, which is text: different cells may have the same. The row is the first one's.
	cells map[state.FaultKey][]query.ID
}

type faultRow struct {
	key state.FaultKey
	row state.Fault
}

// lookInto prepares rows for what the graph and the ledger want looked into; the next commit writes them.
func (l *Loop) lookInto() {
	f := &l.faults
	f.waiting = append(f.waiting, l.graph.TakeFaults()...)
	n := min(lookups, len(f.waiting))
	for _, c := range f.waiting[:n] {
		l.noteFault(c)
	}
	if f.waiting = f.waiting[n:]; len(f.waiting) == 0 {
		f.waiting = nil
	}
	l.findOrigins(lookups - n)
}

// curious reports whether something waits to be looked into, or to be written.
func (l *Loop) curious() bool { return len(l.faults.waiting)+len(l.ledger.wanted)+len(l.notes) > 0 }

// noteFault notes the row of a fault that came or changed, or that the row of one that is gone is to go.
func (l *Loop) noteFault(c query.FaultChange) {
	f := &l.faults
	if c.Fault != nil && classes.TellsFaults(c.Fault.Query) {
		l.settings.Log.Error("what tells of faults failed", "key", c.Fault.Key, "reason", c.Fault.Reason)
		return
	}
	if old, had := f.rows[c.Cell]; had {
		delete(f.rows, c.Cell)
		f.cells[old.key] = slices.DeleteFunc(f.cells[old.key], func(id query.ID) bool { return id == c.Cell })
		l.notes = append(l.notes, func(tx *store.Txn) { l.writeFault(tx, old.key) })
	}
	if c.Fault == nil {
		return
	}
	reason, _, _ := strings.Cut(c.Fault.Reason, "\n")
	key := state.FaultKey{Query: c.Fault.Query, Key: c.Fault.Key}
	row := state.Fault{Reason: reason, Kept: c.Fault.Kept}
	if c.Fault.Kind == query.Panicked { // every other fault is the query's own, whatever it read
		row.Objects = classes.Objects(l.graph, c.Cell)
		row.Objects = row.Objects[:min(len(row.Objects), maxBlamed)]
	}
	f.rows[c.Cell] = faultRow{key, row}
	f.cells[key] = append(f.cells[key], c.Cell)
	l.notes = append(l.notes, func(tx *store.Txn) { l.writeFault(tx, key) })
}

// writeFault writes the row of a key as it is to be now.
func (l *Loop) writeFault(tx *store.Txn, key state.FaultKey) {
	if cells := l.faults.cells[key]; len(cells) > 0 {
		l.tables.Faults.Set(tx, key, l.faults.rows[cells[0]].row)
		return
	}
	delete(l.faults.cells, key)
	l.tables.Faults.Delete(tx, key)
}
