package query

import (
	"fmt"
	"strings"

	"github.com/pilotmesh/pilot/internal/store"
)

// Fault is what is wrong with a cell: a bug in a query, of which users must be told.
type Fault struct {
	Cell     ID
	Query    string
	Key      string
	Kind     FaultKind
	Reason   string
	Revision store.Revision // the commit at which it came
	Kept     bool           // a last good value is still served
}

// FaultKind says what is wrong with a cell.
type FaultKind uint8

// The kinds of faults.
const (
	// Panicked: the last run of the cell panicked.
	Panicked FaultKind = iota + 1
	// Overread: the cell reads more than ReadLimit things and costs what they all cost. Its result is right.
	Overread
	// SameKey: two elements of the collection have the same key. They count as one element.
	SameKey
	// SameName: two elements of the collection have outputs of the same name. The first element's is served.
	SameName
)

// Faults lists the cells with a fault, in no particular order.
func (g *Graph) Faults() []Fault {
	list := make([]Fault, 0, len(g.faults))
	for _, f := range g.faults {
		list = append(list, f)
	}
	return list
}

// FaultChange is a fault that came or changed, or the fault of a cell that has none any longer.
type FaultChange struct {
	Cell  ID
	Fault *Fault // nil: it is gone
}

// TakeFaults lists what has changed among the faults since the last call, each cell once, in the order of the changes.
func (g *Graph) TakeFaults() []FaultChange {
	if len(g.judged) == 0 {
		return nil
	}
	list := make([]FaultChange, 0, len(g.judged))
	told := make(map[store.ID]struct{}, len(g.judged))
	for _, id := range g.judged {
		if _, ok := told[id]; ok {
			continue
		}
		told[id] = struct{}{}
		change := FaultChange{Cell: id}
		if f, ok := g.faults[id]; ok {
			change.Fault = &f
		}
		list = append(list, change)
	}
	g.judged = nil
	return list
}

// verdict is what a run of a cell did wrong; the zero verdict is nothing.
type verdict struct {
	kind   FaultKind
	reason string
	kept   bool
}

// judge keeps the fault of a cell that has run.
func (g *Graph) judge(id store.ID, n *node, v verdict) {
	if v.kind == 0 && len(n.reads) > ReadLimit {
		v = verdict{Overread, fmt.Sprintf("it reads %d things, which should be a collection", len(n.reads)), true}
	}
	if v.kind == 0 {
		if n.flags&faulty != 0 {
			n.flags &^= faulty
			g.absolve(id)
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
	g.judged = append(g.judged, id)
}

// firstLine leaves out the stack, which differs at each panic.
func firstLine(reason string) string {
	line, _, _ := strings.Cut(reason, "\n")
	return line
}

func (g *Graph) absolve(id store.ID) {
	delete(g.faults, id)
	g.judged = append(g.judged, id)
}
