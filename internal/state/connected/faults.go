package connected

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// FaultKey names a cell of the graph as text.
type FaultKey struct {
	Query string
	Key   string // the key of the cell as text, which other cells may have too
}

// Compare orders by query, then key.
func (k FaultKey) Compare(o FaultKey) int {
	return cmp.Or(strings.Compare(k.Query, o.Query), strings.Compare(k.Key, o.Key))
}

// AppendTo appends an unambiguous form.
func (k FaultKey) AppendTo(b []byte) []byte {
	return append(append(appendLength(b, k.Query), k.Query...), k.Key...)
}

// Fault is a failure of a cell. It is a bug, not a mistake of a user.
type Fault struct {
	Reason  string    // one line of text
	Kept    bool      // whether the last good result stays in force
	Objects []api.Key // the objects that the cell had read when it failed
}

func (f Fault) equal(o Fault) bool {
	return f.Reason == o.Reason && f.Kept == o.Kept && slices.Equal(f.Objects, o.Objects)
}

func (t *Rows) defineFaults(db *store.DB) {
	t.Faults = store.NewTable[FaultKey](db, "faults", Fault.equal)
	t.FaultKeys = store.NewIndex(t.Faults, "faultKeys", func(k FaultKey, _ Fault, add func(struct{}, FaultKey)) {
		add(struct{}{}, k)
	})
}
