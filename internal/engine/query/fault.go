package query

import (
	"fmt"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// Fault describes a failure of a cell. A fault is a bug in a query, and is reported to the users.
type Fault struct {
	Cell     ID
	Query    string
	Key      string
	Kind     FaultKind
	Reason   string
	Revision store.Revision // the commit at which the fault appeared
	Kept     bool           // readers still get the last good value
}

// FaultKind classifies faults.
type FaultKind uint8

// The kinds of faults.
const (
	// Panicked: the last run of the cell panicked.
	Panicked FaultKind = iota + 1
	// Overread: the cell reads more than readLimit things, so it runs too often. Its result is right. A cell that reads more than
	// failLimit things has Panicked.
	Overread
	// SameKey: several elements of the collection have the same key. They count as one element.
	SameKey
	// SameName: outputs of several elements of the collection have the same name. The output of the first element is used.
	SameName
)

// Faults returns the present faults in no particular order.
func (g *Graph) Faults() []Fault {
	list := make([]Fault, 0, len(g.faults))
	for _, f := range g.faults {
		list = append(list, f)
	}
	return list
}

// FaultChange is a fault that appeared or changed, or the cell of a fault that was resolved.
type FaultChange struct {
	Cell  ID
	Fault *Fault // nil: the fault was resolved
}

// TakeFaults returns the changes of faults since the last call, one per cell, in the order of the changes.
func (g *Graph) TakeFaults() []FaultChange {
	if len(g.changedFaults) == 0 {
		return nil
	}
	list := make([]FaultChange, 0, len(g.changedFaults))
	seen := make(map[store.ID]struct{}, len(g.changedFaults))
	for _, id := range g.changedFaults {
		if _, ok := seen[id]; ok {
			continue
		}
		seen[id] = struct{}{}
		change := FaultChange{Cell: id}
		if f, ok := g.faults[id]; ok {
			change.Fault = &f
		}
		list = append(list, change)
	}
	g.changedFaults = nil
	return list
}

// defect is the failure of a run of a cell. The zero defect means that nothing is wrong.
type defect struct {
	kind   FaultKind
	reason string
	kept   bool
}

// recordFault records or clears the fault of a cell that has run.
func (g *Graph) recordFault(id store.ID, n *node, v defect) {
	if v.kind == 0 && len(n.reads) > readLimit {
		v = defect{Overread, fmt.Sprintf("it reads %d things and should be a collection", len(n.reads)), true}
	}
	if v.kind == 0 {
		if n.flags&faulty != 0 {
			n.flags &^= faulty
			g.clearFault(id)
		}
		return
	}
	query, key := g.name(id)
	f := Fault{Cell: id, Query: query, Key: key, Kind: v.kind, Reason: v.reason, Revision: g.rev, Kept: v.kept}
	if old, ok := g.faults[id]; ok && old.Kind == f.Kind && firstLine(old.Reason) == firstLine(f.Reason) && old.Kept == f.Kept {
		return
	}
	n.flags |= faulty
	g.faults[id] = f
	g.changedFaults = append(g.changedFaults, id)
}

// firstLine cuts off the stack trace, which differs from panic to panic.
func firstLine(reason string) string {
	line, _, _ := strings.Cut(reason, "\n")
	return line
}

func (g *Graph) clearFault(id store.ID) {
	delete(g.faults, id)
	g.changedFaults = append(g.changedFaults, id)
}
