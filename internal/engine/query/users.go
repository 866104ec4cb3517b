package query

import (
	"iter"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// manyUsers is the number of users above which a userSet uses a bitmap.
const manyUsers = 256

// userSet is the set of cells that read a leaf or cell. It has no order.
//
// Most cells have one or two users, while some leaves (a mesh-wide setting) have tens of thousands. A list serves few users. A
// bitmap serves many: the users of one leaf are mostly neighbouring cells of one query, so the bitmap needs about two bytes
// for each and finds each without a search.
type userSet struct {
	few  []store.ID
	many *roaring64.Bitmap // nil while few holds the users
}

// add adds a user, which must not be in the set.
func (s *userSet) add(u store.ID) {
	if s.many == nil && len(s.few) < manyUsers {
		s.few = append(s.few, u)
		return
	}
	if s.many == nil {
		s.many = roaring64.New()
		for _, old := range s.few {
			s.many.Add(uint64(old))
		}
		s.few = nil
	}
	s.many.Add(uint64(u))
}

func (s *userSet) has(u store.ID) bool {
	if s.many != nil {
		return s.many.Contains(uint64(u))
	}
	return slices.Contains(s.few, u)
}

// remove removes a user, which must be in the set.
func (s *userSet) remove(u store.ID) {
	if s.many != nil {
		s.many.Remove(uint64(u))
		if s.many.GetCardinality() < manyUsers/2 {
			s.few, s.many = slices.Collect(s.all()), nil
		}
		return
	}
	i, last := slices.Index(s.few, u), len(s.few)-1
	s.few[i] = s.few[last]
	s.few = s.few[:last]
	if cap(s.few) > 4*last+8 {
		s.few = slices.Clone(s.few)
	}
}

// none reports whether the set is empty.
func (s *userSet) none() bool { return s.many == nil && len(s.few) == 0 }

// all yields the users. The set must not be changed during the iteration.
func (s *userSet) all() iter.Seq[store.ID] {
	return func(yield func(store.ID) bool) {
		for _, u := range s.few {
			if !yield(u) {
				return
			}
		}
		if s.many == nil {
			return
		}
		for it := s.many.Iterator(); it.HasNext(); {
			if !yield(store.ID(it.Next())) {
				return
			}
		}
	}
}
