package store

import "iter"

// Table is a map of rows with typed keys and values.
//
// Table and Index are interfaces so that only the package that makes one compiles the code behind it; see query.Query.
type Table[K comparable, V any] interface {
	// Get returns a row. The read is recorded, also if there is no such row.
	Get(r Reader, k K) (V, bool)
	// Peek returns a row without recording a read. It is for the writer, which needs it to prepare a commit, and for debug pages.
	Peek(k K) (V, bool)
	// Leaf returns the ID of a row, present or absent. ok is false if the row does not exist and no cell has read it.
	Leaf(k K) (id ID, ok bool)
	// All yields the rows in no particular order. It is for the writer, debug pages and tests.
	All() iter.Seq2[K, V]
	// Len returns the number of rows.
	Len() int
	// Set writes a row. It does nothing if the row has an equal value already.
	Set(tx *Txn, k K, v V)
	// Delete deletes a row, if it exists.
	Delete(tx *Txn, k K)
	// OmitFromJournal keeps the table's changes out of the journal. It is for tables about connected clients: their
	// changes are not part of the history of the configuration, and would push that out of the journal.
	OmitFromJournal()
	// SetRole says for explanations what the rows are for the results that are made of them, such as "routes". Without a role they are only indexes.
	SetRole(role string)
}

// table is a Table with its rows.
type table[K comparable, V any] struct {
	db      *DB
	name    string
	role    string
	space   int
	equal   func(a, b V) bool
	rows    slots[K, V]
	present int
	indexes []interface {
		change(tx *Txn, k K, old *V, new *V)
	}
	// unrecorded reports that the table's changes are not kept in the journal.
	unrecorded bool
}

// NewTable adds a table to db. equal decides whether a write changes a row; it must compare everything that readers can see.
func NewTable[K comparable, V any](db *DB, name string, equal func(a, b V) bool) Table[K, V] {
	t := &table[K, V]{db: db, name: name, equal: equal}
	t.space = db.add(t)
	db.tables = append(db.tables, t)
	return t
}

func (t *table[K, V]) OmitFromJournal() { t.unrecorded = true }

func (t *table[K, V]) SetRole(role string) { t.role = role }

func (t *table[K, V]) Get(r Reader, k K) (V, bool) {
	if r.Naive() || r.Glancing() {
		return t.rows.peek(k)
	}
	v, ok, n := t.rows.at(k)
	r.Read(LeafID(t.space, n))
	return v, ok
}

func (t *table[K, V]) Peek(k K) (V, bool) { return t.rows.peek(k) }

func (t *table[K, V]) Leaf(k K) (id ID, ok bool) {
	n, ok := t.rows.kept.Find(k)
	return LeafID(t.space, n), ok
}

func (t *table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for it := range t.rows.kept.All() {
			if it.present && !yield(it.key, it.item) {
				return
			}
		}
	}
}

func (t *table[K, V]) Len() int { return t.present }

func (t *table[K, V]) Set(tx *Txn, k K, v V) {
	n := t.rows.ensure(k)
	it := t.rows.item(n)
	if it.present && t.equal(it.item, v) {
		return
	}
	var old *V
	if it.present {
		was := it.item
		old = &was
	} else {
		t.present++
	}
	for _, x := range t.indexes {
		x.change(tx, k, old, &v)
	}
	it = t.rows.writable(n)
	it.item, it.present = v, true
	t.record(tx, n, it, old)
}

func (t *table[K, V]) Delete(tx *Txn, k K) {
	n, ok := t.rows.kept.Find(k)
	if !ok || !t.rows.item(n).present {
		return
	}
	it := t.rows.writable(n)
	old := it.item
	for _, x := range t.indexes {
		x.change(tx, k, &old, nil)
	}
	var none V
	it.item, it.present = none, false
	t.present--
	t.record(tx, n, it, &old)
}

// record adds a changed row to the journal and to the leaves that changed.
func (t *table[K, V]) record(tx *Txn, n uint32, now *slot[K, V], old *V) {
	if !t.unrecorded && tx.remembers() {
		c := &rowChange[K, V]{table: t, key: now.key, old: old}
		if now.present {
			is := now.item
			c.new = &is
		}
		tx.changes = append(tx.changes, c)
	}
	tx.touch(LeafID(t.space, n), &now.changed)
}

func (t *table[K, V]) label() string { return t.name }
func (t *table[K, V]) describe(n uint32) LeafInfo {
	info := t.rows.info(t.name, n)
	info.Role = t.role
	return info
}
func (t *table[K, V]) release(n uint32) { t.rows.release(n) }
