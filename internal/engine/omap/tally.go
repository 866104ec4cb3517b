package omap

import (
	"iter"
	"slices"
)

// Count is a change of one member's multiplicity.
type Count[M any] struct {
	Member M
	By     int // may be negative
}

// Tally collects changes of the multiplicities of members, by group, before they are applied to bags. The zero Tally is
// empty. It keeps no map or list per group, so that it is cheap for one change and for changes of all members of all groups.
type Tally[G comparable, M Key[M]] struct {
	groups    []tallyGroup[G] // in the order of their first change
	positions map[G]int32     // index in groups; nil while there are at most fewGroups
	counts    []tallyCount[M] // changes of all groups
	buffer    []Count[M]      // buffer for the changes of one group
}

// tallyGroup is one group: its key, the index of its last change in Tally.counts (-1 if none), and the number of its changes.
type tallyGroup[G any] struct {
	group G
	last  int32
	count int
}

// tallyCount is one change, and the index in Tally.counts of the previous change of the same group (-1 if none).
type tallyCount[M any] struct {
	Count[M]
	previous int32
}

// fewGroups is the number of groups up to which a linear search finds a group.
const fewGroups = 8

// Add adds by to the change of a member's multiplicity in a group.
func (t *Tally[G, M]) Add(g G, m M, by int) {
	i := t.position(g)
	if n := len(t.counts); n == cap(t.counts) {
		t.counts = slices.Grow(t.counts, n+4) // append would grow a long list in smaller steps and copy it more often
	}
	t.counts = append(t.counts, tallyCount[M]{Count[M]{m, by}, t.groups[i].last})
	t.groups[i].last = int32(len(t.counts) - 1)
	t.groups[i].count++
}

// Empty reports whether Add was never called.
func (t *Tally[G, M]) Empty() bool { return len(t.groups) == 0 }

func (t *Tally[G, M]) position(g G) int {
	if t.positions != nil {
		if i, ok := t.positions[g]; ok {
			return int(i)
		}
	} else if i := slices.IndexFunc(t.groups, func(o tallyGroup[G]) bool { return o.group == g }); i >= 0 {
		return i
	}
	i := len(t.groups)
	t.groups = append(t.groups, tallyGroup[G]{group: g, last: -1})
	if i == fewGroups {
		t.positions = make(map[G]int32, 2*fewGroups)
		for j, o := range t.groups {
			t.positions[o.group] = int32(j)
		}
	} else if t.positions != nil {
		t.positions[g] = int32(i)
	}
	return i
}

// All yields the groups in the order of their first change. Each comes with the sums of its changes: one per member, in the
// order of the members, without sums that are zero. The list is valid until the next iteration.
func (t *Tally[G, M]) All() iter.Seq2[G, []Count[M]] {
	return func(yield func(G, []Count[M]) bool) {
		for _, g := range t.groups {
			if list := t.sum(g); len(list) > 0 && !yield(g.group, list) {
				return
			}
		}
	}
}

// sum returns the sums of the changes of one group.
func (t *Tally[G, M]) sum(g tallyGroup[G]) []Count[M] {
	list := slices.Grow(t.buffer[:0], g.count)
	for i := g.last; i >= 0; i = t.counts[i].previous {
		list = append(list, t.counts[i].Count)
	}
	t.buffer = list
	slices.Reverse(list) // most changes are added in the order of the members
	if byMember := func(a, b Count[M]) int { return a.Member.Compare(b.Member) }; !slices.IsSortedFunc(list, byMember) {
		sorted := make([]Count[M], len(list))
		for n, i := range sortedPositions(len(list), func(i, j int32) int { return byMember(list[i], list[j]) }) {
			sorted[n] = list[i]
		}
		list, t.buffer = sorted, sorted
	}
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
