package state

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// journalRows is the maximum number of changed rows in the journal: enough for some thousand edits, and a few megabytes at most.
// The first list of a large mesh has more rows, so the journal does not keep it.
const journalRows = 4096

// Fork returns tables in a new store, with the rows of a snapshot of tables that were made with equal options. The caller may
// change the rows and define queries over them, on any goroutine, to find out the effect of a change.
func Fork(s *store.Snapshot, o Options) (*Tables, error) {
	t := New(o)
	if err := s.Load(t.DB); err != nil {
		return nil, fmt.Errorf("fork the state of the mesh: %w", err)
	}
	return t, nil
}
