package store_test

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

type pod struct{ app, zone, image string }

func Example() {
	// A table of pods, and an index that groups the zones by application.
	db := store.New()
	pods := store.NewTable[string](db, "pods", func(a, b pod) bool { return a == b })
	zones := store.NewIndex(pods, "zones of app", func(_ string, p pod, add func(app string, zone omap.Name)) {
		add(p.app, omap.Name(p.zone))
	})

	// commit writes rows and prints what changed.
	commit := func(write func(tx *store.Txn)) {
		tx := db.Begin()
		write(tx)
		revision, changed := tx.Commit()
		fmt.Print("revision ", revision, ":")
		for _, id := range changed {
			leaf := db.Describe(id)
			fmt.Printf(" [%s %v]", leaf.Space, leaf.Key)
		}
		fmt.Println()
	}

	commit(func(tx *store.Txn) {
		pods.Set(tx, "a", pod{"web", "z1", "v1"})
		pods.Set(tx, "b", pod{"web", "z2", "v1"})
	})
	// The same row again changes nothing, so there is no new revision.
	commit(func(tx *store.Txn) { pods.Set(tx, "a", pod{"web", "z1", "v1"}) })
	// Another image changes the row, but not the set of zones.
	commit(func(tx *store.Txn) { pods.Set(tx, "a", pod{"web", "z1", "v2"}) })
	// The last pod in z2 is deleted, so the group loses a member.
	commit(func(tx *store.Txn) { pods.Delete(tx, "b") })

	for zone := range zones.Peek("web").All() {
		fmt.Println("web runs in", zone)
	}

	// Output:
	// revision 1: [pods a] [pods b] [zones of app web]
	// revision 1:
	// revision 2: [pods a]
	// revision 3: [pods b] [zones of app web]
	// web runs in z1
}
