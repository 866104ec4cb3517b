package store

import "iter"

// Table is a typed table.
type Table[K comparable, V any] struct {
	db      *DB
	name    string
	space   int
	equal   func(a, b V) bool
	rows    slots[K, V]
	present int
	indexes []interface {
		change(k K, old *V, new *V)
	}
}

// NewTable adds a table to db. equal decides whether a write changes anything: it must see all that readers can see.
func NewTable[K comparable, V any](db *DB, name string, equal func(a, b V) bool) *Table[K, V] {
	t := &Table[K, V]{db: db, name: name, equal: equal}
	t.space = db.add(t)
	return t
}

// Get reads a row. An absent row is a recorded read too.
func (t *Table[K, V]) Get(r Reader, k K) (V, bool) {
	if r.Naive() || r.Glancing() {
		return t.rows.peek(k)
	}
	v, ok, n := t.rows.at(k)
	r.Read(MakeID(t.space, n))
	return v, ok
}

// Peek returns a row without recording a read. It is for the writer: to work out a commit, and for debug pages.
func (t *Table[K, V]) Peek(k K) (V, bool) { return t.rows.peek(k) }

// All yields the rows in no particular order, for the writer, debug pages and tests.
func (t *Table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for it := range t.rows.kept.All() {
			if it.present && !yield(it.key, it.item) {
				return
			}
		}
	}
}

// Len is the number of rows.
func (t *Table[K, V]) Len() int { return t.present }

// Set writes a row; an equal value does nothing.
func (t *Table[K, V]) Set(tx *Txn, k K, v V) {
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
		x.change(k, old, &v)
	}
	it.item, it.present = v, true
	touch(tx, t.space, n, &it.changed)
}

// Delete removes a row, if it is there.
func (t *Table[K, V]) Delete(tx *Txn, k K) {
	n, ok := t.rows.kept.Find(k)
	if !ok || !t.rows.item(n).present {
		return
	}
	it := t.rows.item(n)
	old := it.item
	for _, x := range t.indexes {
		x.change(k, &old, nil)
	}
	var none V
	it.item, it.present = none, false
	t.present--
	touch(tx, t.space, n, &it.changed)
}

// touch notes once per commit that a leaf changed.
func touch(tx *Txn, space int, n uint32, changed *Revision) {
	if *changed != tx.rev {
		*changed = tx.rev
		tx.touched = append(tx.touched, MakeID(space, n))
	}
}

func (t *Table[K, V]) label() string              { return t.name }
func (t *Table[K, V]) describe(n uint32) LeafInfo { return t.rows.info(t.name, n) }
func (t *Table[K, V]) release(n uint32)           { t.rows.release(n) }
func (t *Table[K, V]) settle(*Txn)                {}
