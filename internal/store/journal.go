package store

import "slices"

// Entry is one commit of the journal.
type Entry struct {
	Revision Revision
	// Changes are the rows that the commit changed, in the order of the writes; a row that was written twice is there twice.
	Changes []Change
	// Omitted is how many changes are not kept because the commit has more than the journal holds. Then Changes is empty.
	Omitted int
}

// Change is one row that a commit changed.
type Change interface {
	// Table is the name of the row's table.
	Table() string
	// Key is the row's key.
	Key() any
	// Old is the row before the commit, New the one after it; ok is false if there was none.
	Old() (row any, ok bool)
	New() (row any, ok bool)
	// Revert writes the old row again, or deletes the row if there was none. It does nothing to a table that was dropped.
	Revert(tx *Txn)
}

// journal is a ring of the last commits, bounded by the number of rows they changed.
type journal struct {
	limit   int // changes kept; 0 keeps no journal
	kept    int
	entries []Entry
}

// KeepJournal makes the store remember its last commits, up to that many changed rows. A commit that changed only tables
// which are omitted from it has no entry. 0, the default, keeps none.
func (db *DB) KeepJournal(changes int) { db.journal.limit = changes }

// Journal lists the commits that are remembered, the oldest first. The result may be used by any goroutine.
func (db *DB) Journal() []Entry { return slices.Clone(db.journal.entries) }

// remembers reports whether the journal is to remember one more change of the commit. Once there are too many it remembers none
// of them: what deletes ten thousand rows is not to be kept only to be dropped.
func (tx *Txn) remembers() bool {
	limit := tx.db.journal.limit
	switch {
	case limit == 0:
		return false
	case tx.omitted > 0:
		tx.omitted++
		return false
	case len(tx.changes) == limit:
		tx.changes, tx.omitted = nil, limit+1
		return false
	}
	return true
}

func (j *journal) add(e Entry) {
	if len(e.Changes)+e.Omitted == 0 {
		return
	}
	j.entries, j.kept = append(j.entries, e), j.kept+max(len(e.Changes), 1)
	gone := 0
	for ; j.kept > j.limit; gone++ {
		j.kept -= max(len(j.entries[gone].Changes), 1)
	}
	clear(j.entries[:gone]) // append copies what is behind them only now and then
	j.entries = j.entries[gone:]
}

// rowChange is a Change of a table.
type rowChange[K comparable, V any] struct {
	table    *Table[K, V]
	key      K
	old, new *V // nil: no row
}

var _ Change = (*rowChange[int, int])(nil)

func (c *rowChange[K, V]) Table() string    { return c.table.name }
func (c *rowChange[K, V]) Key() any         { return c.key }
func (c *rowChange[K, V]) Old() (any, bool) { return row(c.old) }
func (c *rowChange[K, V]) New() (any, bool) { return row(c.new) }

func (c *rowChange[K, V]) Revert(tx *Txn) {
	switch {
	case c.table.dropped:
	case c.old == nil:
		c.table.Delete(tx, c.key)
	default:
		c.table.Set(tx, c.key, *c.old)
	}
}

func row[V any](v *V) (any, bool) {
	if v == nil {
		return nil, false
	}
	return *v, true
}
