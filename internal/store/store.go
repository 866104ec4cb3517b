// Package store holds the rows of the mesh: typed tables and indexes, written by one goroutine in atomic commits
// that are numbered by revision.
//
// It owns the rows and the membership of index groups. Invariants: a write of an equal value does nothing, and a commit
// of nothing but such writes does not advance the revision; readers see one revision, because writes happen only between
// Begin and Commit, while nobody reads; a leaf (one row or one index group, present or absent) keeps its ID for as long
// as it is present or somebody who read it has not been released. It starts no goroutines; several may read at once.
// It imports omap and nothing else of this project, above all not query.
package store

import "fmt"

// Revision numbers commits; 0 is the empty store.
type Revision uint64

// ID names a leaf (a row or an index group) or, in package query, a cell: 8 bits of space, 24 bits of slot.
type ID uint32

const slotBits = 24

// MaxSpaces is how many tables, indexes and queries one graph can have.
const MaxSpaces = 1 << (32 - slotBits)

// MaxSlots is how many rows or cells one space can hold at a time.
const MaxSlots = 1 << slotBits

// MakeID joins a space and a slot.
func MakeID(space int, slot uint32) ID { return ID(uint32(space)<<slotBits | slot) }

// Space is the number of the table, index or query.
func (id ID) Space() int { return int(id >> slotBits) }

// Slot is the place within the space.
func (id ID) Slot() uint32 { return uint32(id) & (MaxSlots - 1) }

// Reader is the handle by which a query reads. *query.Reader implements it.
type Reader interface {
	// Read records that the running query read a leaf.
	Read(ID)
	// Naive reports that nothing is recorded and index groups are to be found by scanning rows:
	// the evaluator that the incremental one is tested against.
	Naive() bool
	// Glancing reports that nothing is recorded, and that rows and groups are to be read as they stand.
	Glancing() bool
}

// LeafInfo describes a leaf to people.
type LeafInfo struct {
	Space   string   // name of the table or index
	Key     any      // the row's or group's key
	Present bool     // the row exists, or the group has members
	Changed Revision // the commit that last changed it; 0 if none did
}

// DB is a set of tables that commit together.
type DB struct {
	spaces []space
	rev    Revision
	open   bool
}

// space is what a table or an index is to the DB.
type space interface {
	label() string
	describe(slot uint32) LeafInfo
	release(slot uint32)
	settle(tx *Txn)
}

// New returns an empty store.
func New() *DB { return &DB{} }

// Revision is the number of the last commit.
func (db *DB) Revision() Revision { return db.rev }

// Spaces is the number of tables and indexes; their IDs use the spaces below it.
func (db *DB) Spaces() int { return len(db.spaces) }

// SpaceName is the name of a table or index.
func (db *DB) SpaceName(space int) string { return db.spaces[space].label() }

// Describe tells what a leaf is.
func (db *DB) Describe(id ID) LeafInfo { return db.spaces[id.Space()].describe(id.Slot()) }

// Release says that no cell depends on the leaf any longer; an absent one gives its slot back.
func (db *DB) Release(id ID) { db.spaces[id.Space()].release(id.Slot()) }

func (db *DB) add(s space) int {
	if len(db.spaces) == MaxSpaces {
		panic(fmt.Sprintf("store: more than %d tables and indexes", MaxSpaces))
	}
	db.spaces = append(db.spaces, s)
	return len(db.spaces) - 1
}

// Txn is one commit being written. It is not safe for concurrent use.
type Txn struct {
	db      *DB
	rev     Revision
	touched []ID
}

// Begin opens the next commit. Only one may be open, and nobody may read until it is committed.
func (db *DB) Begin() *Txn {
	if db.open {
		panic("store: a commit is already open")
	}
	db.open = true
	return &Txn{db: db, rev: db.rev + 1}
}

// Commit makes the writes one revision and returns it with the leaves that changed, each once.
// A commit that changed nothing returns the present revision and no leaves.
func (tx *Txn) Commit() (Revision, []ID) {
	if tx.db == nil {
		panic("store: commit of a closed transaction")
	}
	db := tx.db
	for _, s := range db.spaces {
		s.settle(tx)
	}
	db.open, tx.db = false, nil
	if len(tx.touched) > 0 {
		db.rev = tx.rev
	}
	return db.rev, tx.touched
}
