package push

import (
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
	rows    map[query.ID]state.FaultKey
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
	old, had := l.faults.rows[c.Cell]
	if c.Fault == nil {
		delete(l.faults.rows, c.Cell)
		if had {
			l.notes = append(l.notes, func(tx *store.Txn) { l.tables.Faults.Delete(tx, old) })
		}
		return
	}
	if classes.TellsFaults(c.Fault.Query) {
		l.settings.Log.Error("what tells of faults failed", "key", c.Fault.Key, "reason", c.Fault.Reason)
		return
	}
	reason, _, _ := strings.Cut(c.Fault.Reason, "\n")
	key := state.FaultKey{Query: c.Fault.Query, Key: c.Fault.Key}
	row := state.Fault{Reason: reason, Kept: c.Fault.Kept}
	if c.Fault.Kind == query.Panicked { // every other fault is the query's own, whatever it read
		row.Objects = classes.Objects(l.graph, c.Cell)
		row.Objects = row.Objects[:min(len(row.Objects), maxBlamed)]
	}
	l.faults.rows[c.Cell] = key
	l.notes = append(l.notes, func(tx *store.Txn) {
		if had && old != key {
			l.tables.Faults.Delete(tx, old)
		}
		l.tables.Faults.Set(tx, key, row)
	})
}
