package store

import "slices"

// Entry is one commit of the journal.
type Entry struct {
	Revision Revision
	// Changes are the rows that the commit changed, in the order of the writes. A row that was written twice occurs twice.
	Changes []Change
	// Omitted is the number of changes if there are more than the journal can hold; then Changes is empty. Otherwise it is 0.
	Omitted int
}

// Change is a change of one row by a commit.
type Change interface {
	// Table returns the name of the row's table.
	Table() string
	// Key returns the row's key.
	Key() any
	// Old returns the row before the commit, and New returns the row after it. ok is false if there was none.
	Old() (row any, ok bool)
	New() (row any, ok bool)
	// Revert writes the old row again, or deletes the row if there was none.
	Revert(tx *Txn)
}

// journal holds the last commits. It is bounded by the number of rows they changed.
type journal struct {
	limit   int // the largest number of changes to keep; 0 disables the journal
	kept    int // the number of changes in entries; an entry without changes counts as one
	entries []Entry
}

// KeepJournal sets how many changed rows the journal holds. 0, the default, disables it. A commit that changed only tables
// that are omitted from the journal has no entry.
func (db *DB) KeepJournal(changes int) { db.journal.limit = changes }

// Journal returns the commits in the journal, the oldest first. Any goroutine may use the result.
func (db *DB) Journal() []Entry { return slices.Clone(db.journal.entries) }

// remembers reports whether the journal keeps one more change of this commit. If the commit has more changes than the
// journal holds, it keeps none of them, so that the deletion of ten thousand rows does not first collect ten thousand changes.
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
	dropped := 0
	for ; j.kept > j.limit; dropped++ {
		j.kept -= max(len(j.entries[dropped].Changes), 1)
	}
	clear(j.entries[:dropped]) // append copies the entries to a new array only now and then; until then the old array would keep these rows alive
	j.entries = j.entries[dropped:]
}

// rowChange is the Change of a row of one table.
type rowChange[K comparable, V any] struct {
	table    *table[K, V]
	key      K
	old, new *V // nil: there was no row, or there is none now
}

var _ Change = (*rowChange[int, int])(nil)

func (c *rowChange[K, V]) Table() string    { return c.table.name }
func (c *rowChange[K, V]) Key() any         { return c.key }
func (c *rowChange[K, V]) Old() (any, bool) { return row(c.old) }
func (c *rowChange[K, V]) New() (any, bool) { return row(c.new) }

func (c *rowChange[K, V]) Revert(tx *Txn) {
	if c.old == nil {
		c.table.Delete(tx, c.key)
	} else {
		c.table.Set(tx, c.key, *c.old)
	}
}

func row[V any](v *V) (any, bool) {
	if v == nil {
		return nil, false
	}
	return *v, true
}
