package omap

import (
	"iter"
	"slices"
)

// Count is a change of a member's multiplicity.
type Count[M any] struct {
	Member M
	By     int
}

// Tally adds up how the multiplicities of members of groups change, before bags take that in. The zero Tally is empty. It is
// made for changes of anything between one member and all members of all groups: it has no map or list per group.
type Tally[G comparable, M Key[M]] struct {
	groups []tallied[G] // in the order in which they came
	places map[G]int32  // in groups, once there are many
	counts []counted[M] // of all groups
	room   []Count[M]   // for those of one group
}

// tallied is a group, with the place of its last count and how many it has.
type tallied[G any] struct {
	group G
	last  int32
	count int
}

// counted is a count, and the place of the one of the same group before it; negative if there is none.
type counted[M any] struct {
	Count[M]
	before int32
}

// fewGroups is the number up to which a group is looked for one by one.
const fewGroups = 8

// Add notes that a member's multiplicity in a group changes.
func (t *Tally[G, M]) Add(g G, m M, by int) {
	i := t.place(g)
	if n := len(t.counts); n == cap(t.counts) {
		t.counts = slices.Grow(t.counts, n+4) // append would copy a long list more often
	}
	t.counts = append(t.counts, counted[M]{Count[M]{m, by}, t.groups[i].last})
	t.groups[i].last = int32(len(t.counts) - 1)
	t.groups[i].count++
}

// Empty reports whether nothing was added.
func (t *Tally[G, M]) Empty() bool { return len(t.groups) == 0 }

func (t *Tally[G, M]) place(g G) int {
	if t.places != nil {
		if i, ok := t.places[g]; ok {
			return int(i)
		}
	} else if i := slices.IndexFunc(t.groups, func(o tallied[G]) bool { return o.group == g }); i >= 0 {
		return i
	}
	i := len(t.groups)
	t.groups = append(t.groups, tallied[G]{group: g, last: -1})
	if i == fewGroups {
		t.places = make(map[G]int32, 2*fewGroups)
		for j, o := range t.groups {
			t.places[o.group] = int32(j)
		}
	} else if t.places != nil {
		t.places[g] = int32(i)
	}
	return i
}

// All yields the groups in the order in which they came, each with what changes for its members: once per member, in their
// order, and not zero. The list is valid until the next group.
func (t *Tally[G, M]) All() iter.Seq2[G, []Count[M]] {
	return func(yield func(G, []Count[M]) bool) {
		for _, g := range t.groups {
			if list := t.of(g); len(list) > 0 && !yield(g.group, list) {
				return
			}
		}
	}
}

// of adds up what changes in a group.
func (t *Tally[G, M]) of(g tallied[G]) []Count[M] {
	list := slices.Grow(t.room[:0], g.count)
	for i := g.last; i >= 0; i = t.counts[i].before {
		list = append(list, t.counts[i].Count)
	}
	t.room = list
	slices.Reverse(list) // most come in order
	slices.SortFunc(list, func(a, b Count[M]) int { return a.Member.Compare(b.Member) })
	sum := list[:0]
	for i, c := range list {
		if n := len(sum); i > 0 && n > 0 && sum[n-1].Member == c.Member {
			sum[n-1].By += c.By
			continue
		}
		sum = append(sum, c)
	}
	return slices.DeleteFunc(sum, func(c Count[M]) bool { return c.By == 0 })
}
