package state

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/store"
)

// journalRows is how many changed rows of the last commits are remembered: those of some thousand edits, a few megabytes at
// most. A first list of everything is more than that and is not kept.
const journalRows = 4096

// Fork returns tables in a store of their own, with the rows of a snapshot of tables that were made with equal options.
// Whoever has them may change rows and define queries over them, on any goroutine, to find out what would be.
func Fork(s *store.Snapshot, o Options) (*Tables, error) {
	t := New(o)
	if err := s.Load(t.DB); err != nil {
		return nil, fmt.Errorf("fork the state of the mesh: %w", err)
	}
	return t, nil
}
