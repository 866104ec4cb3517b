// Package store holds the rows of the mesh in typed tables with indexes. One goroutine writes them in atomic commits, which
// are numbered by revision.
//
// The package owns the rows, the membership of index groups, and a journal of the last commits.
//
// Invariants:
//   - A write of an equal value does nothing. A commit that contains only such writes does not advance the revision.
//   - Readers see one revision, because no goroutine reads between Begin and Commit.
//   - A leaf is one row or one index group, present or absent. It keeps its ID while it is present and until every cell that
//     read it has been released.
//
// Goroutines: the package starts none. Several goroutines may read at once.
package store

import "slices"

// Revision is the number of a commit. Revision 0 is the empty store.
type Revision uint64

// ID identifies a leaf (a row or an index group) or, in package query, a cell. It consists of one bit that is set for
// leaves, 31 bits for the space and 32 bits for the slot. Leaves and cells number their spaces independently, so that tables
// can be added after queries have been defined.
type ID uint64

const (
	slotBits = 32
	leafBit  = ID(1) << 63
)

// MaxSlots is the largest number of rows or cells in one space.
const MaxSlots = 1<<slotBits - 1

// LeafID returns the ID of a row of a table or of a group of an index.
func LeafID(space int, slot uint32) ID { return leafBit | CellID(space, slot) }

// CellID returns the ID of a cell of a query.
func CellID(space int, slot uint32) ID { return ID(space)<<slotBits | ID(slot) }

// Leaf reports whether id identifies a leaf. Otherwise it identifies a cell.
func (id ID) Leaf() bool { return id&leafBit != 0 }

// Space returns the number of the table, index or query.
func (id ID) Space() int { return int(id &^ leafBit >> slotBits) }

// Slot returns the number of the row, group or cell in its space.
func (id ID) Slot() uint32 { return uint32(id) }

// Reader is the handle through which a query reads. *query.Reader implements it.
type Reader interface {
	// Read records that the running query read a leaf.
	Read(ID)
	// Naive reports that reads are not recorded and that index groups are to be computed by scanning the rows. The naive
	// evaluator, against which tests compare the incremental one, works in this way.
	Naive() bool
	// Glancing reports that reads are not recorded and that rows and groups are to be returned as they are.
	Glancing() bool
}

// LeafInfo describes a leaf for debug pages and messages.
type LeafInfo struct {
	// Space is the name of the table or index.
	Space string
	// Role is the role of the rows of the table; see Table.SetRole.
	Role string
	// Key is the key of the row or group; nil if the slot is free.
	Key any
	// Present reports that the row exists or that the group has members.
	Present bool
	// Changed is the commit that last changed the leaf; 0 if no commit did.
	Changed Revision
}

// DB is a set of tables that commit together.
type DB struct {
	spaces  []space // tables and indexes by number
	tables  []anyTable
	journal journal
	rev     Revision
	open    bool // a commit is open
}

// space is the view that the DB has of a table or an index.
type space interface {
	label() string
	describe(slot uint32) LeafInfo
	release(slot uint32)
}

// anyTable is the view that a snapshot has of a table.
type anyTable interface {
	label() string
	freeze() frozen
}

// New returns an empty store.
func New() *DB { return &DB{} }

// Revision returns the number of the last commit.
func (db *DB) Revision() Revision { return db.rev }

// Describe returns a description of a leaf.
func (db *DB) Describe(id ID) LeafInfo { return db.spaces[id.Space()].describe(id.Slot()) }

// Release marks the leaf as one that no cell depends on any longer. If the leaf is absent, its slot is freed.
func (db *DB) Release(id ID) { db.spaces[id.Space()].release(id.Slot()) }

// InUse reports whether the ID identifies a row or group that exists, or an absent one that was read. Tests check with it that
// every leaf that a cell depends on is in use.
func (db *DB) InUse(id ID) bool {
	s := id.Space()
	return s < len(db.spaces) && db.spaces[s].describe(id.Slot()).Key != nil
}

// add assigns a number to a table or an index.
func (db *DB) add(s space) int {
	db.spaces = append(db.spaces, s)
	return len(db.spaces) - 1
}

// Txn is an open commit. It is not safe for concurrent use.
type Txn struct {
	db      *DB
	rev     Revision
	touched []ID      // the leaves that changed, in the order of their first change
	changes []Change  // the changes for the journal
	omitted int       // the number of changes if they are too many for the journal; 0 otherwise
	indexes []settler // the indexes with pending changes, in the order of their first change
}

// settler is an index that the commit changes.
type settler interface{ settle(tx *Txn) }

// Begin opens a commit. Only one commit may be open, and no goroutine may read until it is committed.
func (db *DB) Begin() *Txn {
	if db.open {
		panic("store: a commit is already open")
	}
	db.open = true
	return &Txn{db: db, rev: db.rev + 1}
}

// Commit completes the commit and returns its revision with the leaves that changed. Each leaf occurs once, in the order of
// their first changes: equal writes to stores with equal histories return equal lists. A commit that changed nothing returns
// the present revision and no leaves.
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

// touch adds a leaf to the list of changed leaves, once per commit.
func (tx *Txn) touch(id ID, changed *Revision) {
	if *changed != tx.rev {
		*changed = tx.rev
		if n := len(tx.touched); n == cap(tx.touched) {
			tx.touched = slices.Grow(tx.touched, n+8) // append would grow a long list in smaller steps and copy it more often
		}
		tx.touched = append(tx.touched, id)
	}
}
