package loop

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/state/connected"
	classes "github.com/pilotmesh/pilot/internal/xds/class"
)

// maxLookups is the number of faults and rejections that the loop looks up before it checks its queue again. They take about
// a millisecond.
const maxLookups = 100

// maxFaultObjects is the largest number of objects that get a Problem for one fault.
const maxFaultObjects = 50

// faults has the faults of cells. Each fault becomes a row once, and the row a Problem of the objects that the cell had read, so
// that a bug is visible to users.
type faults struct {
	// waiting are changes that the graph has reported and the loop has not processed.
	waiting []query.FaultChange
	// rows are the rows by cell.
	rows map[query.ID]faultRow
	// cells are the cells with a fault, by the key of their row. The key is text, which several cells may share; the row is
	// then the first cell's.
	cells map[connected.FaultKey][]query.ID
}

// faultRow is the row of one cell's fault.
type faultRow struct {
	key connected.FaultKey
	row connected.Fault
}

// lookUp looks up the objects of faults and rejections, at most maxLookups. The next commit writes the rows.
func (l *Loop) lookUp() {
	f := &l.faults
	f.waiting = append(f.waiting, l.graph.TakeFaults()...)
	n := min(maxLookups, len(f.waiting))
	for _, c := range f.waiting[:n] {
		l.updateFault(c)
	}
	if f.waiting = f.waiting[n:]; len(f.waiting) == 0 {
		f.waiting = nil
	}
	l.lookUpOrigins(maxLookups - n)
}

// hasLookups reports whether lookups, or the rows that result from them, wait.
func (l *Loop) hasLookups() bool {
	return len(l.faults.waiting)+len(l.rejections.lookups)+len(l.writes) > 0
}

// updateFault prepares the row of a fault that is new or has changed, or the deletion of the row of one that has ended.
func (l *Loop) updateFault(c query.FaultChange) {
	f := &l.faults
	if c.Fault != nil && classes.TellsFaults(c.Fault.Query) {
		l.settings.Log.Error("the query that reports faults failed", "key", c.Fault.Key, "reason", c.Fault.Reason)
		return
	}
	if old, had := f.rows[c.Cell]; had {
		delete(f.rows, c.Cell)
		f.cells[old.key] = slices.DeleteFunc(f.cells[old.key], func(id query.ID) bool { return id == c.Cell })
		l.writes = append(l.writes, func(tx *store.Txn) { l.writeFault(tx, old.key) })
	}
	if c.Fault == nil {
		return
	}
	reason, _, _ := strings.Cut(c.Fault.Reason, "\n")
	key := connected.FaultKey{Query: c.Fault.Query, Key: c.Fault.Key}
	row := connected.Fault{Reason: reason, Kept: c.Fault.Kept}
	if c.Fault.Kind == query.Panicked { // Other faults do not depend on what the query read.
		row.Objects = classes.Objects(l.graph, c.Cell)
		row.Objects = row.Objects[:min(len(row.Objects), maxFaultObjects)]
	}
	f.rows[c.Cell] = faultRow{key, row}
	f.cells[key] = append(f.cells[key], c.Cell)
	l.writes = append(l.writes, func(tx *store.Txn) { l.writeFault(tx, key) })
}

// writeFault writes the row of a key, or deletes it if no cell has such a fault any more.
func (l *Loop) writeFault(tx *store.Txn, key connected.FaultKey) {
	if cells := l.faults.cells[key]; len(cells) > 0 {
		l.tables.Faults.Set(tx, key, l.faults.rows[cells[0]].row)
		return
	}
	delete(l.faults.cells, key)
	l.tables.Faults.Delete(tx, key)
}
