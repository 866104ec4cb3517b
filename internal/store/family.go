package store

import (
	"fmt"
	"iter"

	"github.com/pilotmesh/pilot/internal/omap"
)

// Family is a group of tables that exists once per key, for keys that are added and removed at run time, such as remote
// clusters or registries. M is a struct of tables and indexes; the tables of one key are a member of the family. The set of
// members is read like rows: a query that reads a member runs again when the member is added or removed.
type Family[C comparable, M any] interface {
	// Open returns the tables of member c. It creates the member if there is none.
	Open(tx *Txn, c C) M
	// Close deletes member c and all its rows, if there is such a member.
	Close(tx *Txn, c C)
	// Get returns the tables of member c. The read is recorded, also if there is no such member.
	Get(r Reader, c C) (tables M, ok bool)
	// All yields the members in no particular order. It is for the writer, debug pages and tests. A query that must know all
	// members reads a group of an index over them; see NewMemberIndex.
	All() iter.Seq2[C, M]
}

// family is a Family with its members.
type family[C comparable, M any] struct {
	db      *DB
	name    string
	make    func(db *DB, c C) M
	members *table[C, *member[M]]
}

// member holds the tables of one key.
type member[M any] struct {
	tables M
	all    []anyTable // the same tables, in the order in which they were made
}

// NewFamily adds a family without members. make creates the tables and indexes of one member, always in the same order.
func NewFamily[C comparable, M any](db *DB, name string, make func(db *DB, c C) M) Family[C, M] {
	f := &family[C, M]{db: db, name: name, make: make}
	f.members = &table[C, *member[M]]{db: db, name: name, equal: func(a, b *member[M]) bool { return a == b }, unrecorded: true}
	f.members.space = db.add(f.members)
	db.tables = append(db.tables, f)
	return f
}

func (f *family[C, M]) Open(tx *Txn, c C) M {
	if m, ok := f.members.Peek(c); ok {
		return m.tables
	}
	m := &member[M]{}
	f.db.opening = &m.all
	m.tables = f.make(f.db, c)
	f.db.opening = nil
	f.members.Set(tx, c, m)
	return m.tables
}

func (f *family[C, M]) Close(tx *Txn, c C) {
	m, ok := f.members.Peek(c)
	if !ok {
		return
	}
	for _, t := range m.all {
		t.(interface{ drop(*Txn) }).drop(tx)
	}
	f.members.Delete(tx, c)
}

func (f *family[C, M]) Get(r Reader, c C) (tables M, ok bool) {
	m, ok := f.members.Get(r, c)
	if !ok {
		return tables, false
	}
	return m.tables, true
}

func (f *family[C, M]) All() iter.Seq2[C, M] {
	return func(yield func(C, M) bool) {
		for c, m := range f.members.All() {
			if !yield(c, m.tables) {
				return
			}
		}
	}
}

// NewMemberIndex adds an index over the keys of a family's members. The family must have no members yet.
func NewMemberIndex[C comparable, M any, G comparable, N omap.Key[N]](f Family[C, M], name string, entries func(c C, add func(G, N))) Index[G, N] {
	return newIndex(f.(*family[C, M]).members, name, func(c C, _ *member[M], add func(G, N)) { entries(c, add) })
}

func (f *family[C, M]) label() string { return f.name }

func (f *family[C, M]) freeze() frozen {
	list := &frozenFamily[C, M]{}
	for c, m := range f.members.All() {
		one := frozenMember[C]{key: c}
		for _, t := range m.all {
			one.tables = append(one.tables, t.freeze())
		}
		list.members = append(list.members, one)
	}
	return list
}

// frozenFamily holds the rows of a family at one revision.
type frozenFamily[C comparable, M any] struct{ members []frozenMember[C] }

type frozenMember[C comparable] struct {
	key    C
	tables []frozen
}

func (list *frozenFamily[C, M]) load(tx *Txn, into anyTable) error {
	f, ok := into.(*family[C, M])
	if !ok {
		return fmt.Errorf("%q has rows of another type than in the snapshot", into.label())
	}
	for _, one := range list.members {
		f.Open(tx, one.key)
		m, _ := f.members.Peek(one.key)
		if err := loadAll(tx, one.tables, m.all); err != nil {
			return fmt.Errorf("member %v of %q: %w", one.key, f.name, err)
		}
	}
	return nil
}
