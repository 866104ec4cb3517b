// Package store holds the rows of the mesh: typed tables and indexes, written by one goroutine in atomic commits
// that are numbered by revision.
//
// It owns the rows, the membership of index groups, and a journal of the last commits. Invariants: a write of an equal value does nothing, and a commit
// of nothing but such writes does not advance the revision; readers see one revision, because writes happen only between
// Begin and Commit, while nobody reads; a leaf (one row or one index group, present or absent) keeps its ID for as long
// as it is present or somebody who read it has not been released. Tables that come and go, such as those of a remote
// cluster, are members of a Family. It starts no goroutines; several may read at once.
// It imports omap and nothing else of this project, above all not query.
package store

import "slices"

// Revision numbers commits; 0 is the empty store.
type Revision uint64

// ID names a leaf (a row or an index group) or, in package query, a cell: one bit that tells which of the two it is, 31 bits
// of space and 32 bits of slot. Leaves and cells number their spaces apart from each other, so that tables may be added when
// queries are defined already.
type ID uint64

const (
	slotBits = 32
	leafBit  = ID(1) << 63
)

// MaxSlots is how many rows or cells one space can hold at a time.
const MaxSlots = 1<<slotBits - 1

// LeafID names a row of a table or a group of an index.
func LeafID(space int, slot uint32) ID { return leafBit | CellID(space, slot) }

// CellID names a cell of a query.
func CellID(space int, slot uint32) ID { return ID(space)<<slotBits | ID(slot) }

// Leaf reports whether it names a leaf; otherwise it names a cell.
func (id ID) Leaf() bool { return id&leafBit != 0 }

// Space is the number of the table or index, or of the query.
func (id ID) Space() int { return int(id &^ leafBit >> slotBits) }

// Slot is the place within the space.
func (id ID) Slot() uint32 { return uint32(id) }

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
	spaces  []space // by number; nil for one that is free
	free    []int   // numbers of spaces that nobody uses any longer
	tables  []anyTable
	retired []space // dropped tables and their indexes, of which some cell still knows leaves
	opening *[]anyTable
	journal journal
	rev     Revision
	open    bool
}

// space is what a table or an index is to the DB.
type space interface {
	label() string
	number() int
	describe(slot uint32) LeafInfo
	release(slot uint32)
	used() int // slots in use
}

// anyTable is a table or a family of tables, as a snapshot sees it.
type anyTable interface {
	label() string
	freeze() frozen
}

// New returns an empty store.
func New() *DB { return &DB{} }

// Revision is the number of the last commit.
func (db *DB) Revision() Revision { return db.rev }

// Describe tells what a leaf is.
func (db *DB) Describe(id ID) LeafInfo { return db.spaces[id.Space()].describe(id.Slot()) }

// Release says that no cell depends on the leaf any longer; an absent one gives its slot back.
func (db *DB) Release(id ID) { db.spaces[id.Space()].release(id.Slot()) }

// InUse reports whether the ID names a row or group that is there, or one that is absent and was read. Tests hold the readers
// of leaves against it: a leaf that somebody depends on is in use.
func (db *DB) InUse(id ID) bool {
	s := id.Space()
	return s < len(db.spaces) && db.spaces[s] != nil && db.spaces[s].describe(id.Slot()).Key != nil
}

// add gives a table or an index its number.
func (db *DB) add(s space) int {
	if n := len(db.free); n > 0 {
		number := db.free[n-1]
		db.free, db.spaces[number] = db.free[:n-1], s
		return number
	}
	db.spaces = append(db.spaces, s)
	return len(db.spaces) - 1
}

// recycle frees the numbers of dropped tables and indexes once nobody knows a leaf of theirs.
func (db *DB) recycle() {
	if len(db.retired) == 0 {
		return
	}
	db.retired = slices.DeleteFunc(db.retired, func(s space) bool {
		if s.used() > 0 {
			return false
		}
		db.spaces[s.number()] = nil
		db.free = append(db.free, s.number())
		return true
	})
}

// Txn is one commit being written. It is not safe for concurrent use.
type Txn struct {
	db      *DB
	rev     Revision
	touched []ID
	changes []Change  // those that the journal is to remember
	omitted int       // how many there are if they are too many for it
	indexes []settler // those with changes to be settled, in the order in which they changed first
}

// settler is an index that the commit changes.
type settler interface{ settle(tx *Txn) }

// Begin opens the next commit. Only one may be open, and nobody may read until it is committed.
func (db *DB) Begin() *Txn {
	if db.open {
		panic("store: a commit is already open")
	}
	db.open = true
	db.recycle()
	return &Txn{db: db, rev: db.rev + 1}
}

// Commit makes the writes one revision and returns it with the leaves that changed, each once, in the order in which they
// changed first: equal writes after an equal past give equal lists.
// A commit that changed nothing returns the present revision and no leaves.
func (tx *Txn) Commit() (Revision, []ID) {
	if tx.db == nil {
		panic("store: commit of a closed transaction")
	}
	db := tx.db
	for _, x := range tx.indexes {
		x.settle(tx)
	}
	db.open, tx.db = false, nil
	if len(tx.touched) > 0 {
		db.rev = tx.rev
		db.journal.add(Entry{tx.rev, tx.changes, tx.omitted})
	}
	return db.rev, tx.touched
}

// touch notes once per commit that a leaf changed.
func (tx *Txn) touch(id ID, changed *Revision) {
	if *changed != tx.rev {
		*changed = tx.rev
		if n := len(tx.touched); n == cap(tx.touched) {
			tx.touched = slices.Grow(tx.touched, n+8) // append would copy a long list more often
		}
		tx.touched = append(tx.touched, id)
	}
}
