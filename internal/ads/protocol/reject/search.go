package reject

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Search looks for the bad content of one type by its NACKs. If a NACK does not name the bad content, everything that the response
// changed is a suspect. The core then searches for the bad content by bisection: when it has nothing else to send, it
// releases half of the suspects. So bad content does not hold back for long what changed together with it.
type Search struct {
	// Reason is the text of the last NACK; empty after an ACK.
	Reason string
	// Consecutive is the number of NACKs since the last ACK, at most MaxConsecutive-1 after a change of content.
	// NACKs of content that is already pinned do not count.
	Consecutive int
	// Repeated is the number of NACKs, since the last ACK or change of content, of content that was pinned already. After
	// MaxConsecutive of them the client is left alone: it would reject the same again.
	Repeated int
	// unexplained is the number of NACKs since the last change of content that did not name the bad content.
	unexplained int
	// groups of suspects are pinned and wait for their release. The last one is released first.
	groups []group
	// Blocked is the number of groups, from the first, that were put back since something else happened.
	Blocked int
	// accepted is set if the client has acknowledged a response since the last release.
	accepted bool
	// Released is the group that was released last.
	Released []Key
}

// group is content that may have caused a NACK, as a whole or in part.
type group struct {
	keys []Key
	// secondHalf is set if the group was split off together with the group that is released before it. If the client
	// accepts that one, the bad content must be in this group.
	secondHalf bool
}

// Acknowledged notes an ACK.
func (r *Search) Acknowledged() {
	r.Consecutive, r.Repeated, r.Blocked, r.Reason, r.accepted = 0, 0, 0, "", true
}

// ContentChanged allows releases again that too many NACKs have stopped.
func (r *Search) ContentChanged() {
	r.Consecutive, r.Repeated, r.Blocked, r.unexplained = min(r.Consecutive, MaxConsecutive-1), 0, 0, 0
}

// Follow processes the suspects of a NACK, which are pinned. It returns the pins that stay: all suspects if certain is set. Otherwise it
// prepares the bisection of the suspects.
func (r *Search) Follow(suspects []Pin, certain bool) (stay []Pin) {
	r.LearnNothing() // The client rejected the group before it.
	if !certain {
		keys := make([]Key, len(suspects))
		for i := range suspects {
			keys[i] = suspects[i].Key()
		}
		r.Bisect(keys)
		r.unexplained++
	}
	if r.Consecutive == MaxConsecutive {
		// No group is released for now. The user must see all pins that stay.
		suspects = slices.Clip(suspects)
		for _, g := range r.groups {
			suspects = append(suspects, PinsOf(g.keys)...)
		}
		certain = true
	}
	if !certain {
		return nil
	}
	return suspects
}

// Bisect splits suspects into two groups.
func (r *Search) Bisect(keys []Key) {
	half := len(keys) / 2
	r.groups = append(r.groups, group{keys[half:], true}, group{keys[:half], false})
	r.Blocked = 0
}

// MayRelease reports whether a group waits for its release and NACKs have not become too many.
func (r *Search) MayRelease() bool {
	return len(r.groups) > r.Blocked && r.Consecutive < MaxConsecutive && r.unexplained < maxUnexplained
}

// NextGroup takes the group to be released next. bad says that the cause of the NACK is in it, because the client accepted
// the other half, which s still contains.
func (r *Search) NextGroup(s *resource.State) (keys []Key, bad bool) {
	last := len(r.groups) - 1
	g := r.groups[last]
	r.groups = r.groups[:last]
	changed := slices.ContainsFunc(r.Released, func(k Key) bool { return !k.In(s) })
	bad = g.secondHalf && r.accepted && !changed
	r.accepted, r.Released = false, nil
	return g.keys, bad
}

// LearnNothing makes the next answer say nothing about the group that is released next.
func (r *Search) LearnNothing() {
	if n := len(r.groups); n > 0 {
		r.groups[n-1].secondHalf = false
	}
}

// PutBack lets a group wait until the other groups have been released.
func (r *Search) PutBack(keys []Key) {
	r.groups = slices.Insert(r.groups, 0, group{keys: keys})
	r.Blocked++
}
