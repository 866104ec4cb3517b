package file

import (
	"slices"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
)

// A file that is written in pieces has lost access policies for some time. They stay in force until the file has been unchanged for so
// long that it is taken for whole. Other objects go at once: if some stayed beside the new versions of others, a route could refer to a
// subset that its edited DestinationRule does not have any more.

// waits are how long a file must have been unchanged before an access policy is lost or replaced.
type waits struct {
	// cut is for the edit of a policy at the end of a file whose last line does not end: its end may still be missing.
	cut time.Duration
	// policies is for access policies, however they are lost: their workloads would be open.
	policies time.Duration
}

// leave keeps access policies in reserve that are no longer in the file, if it has not been unchanged for long enough; wait is how long it
// must be, and 0 if nothing waits. An access policy at the end of a file that seems to be cut off may be cut off itself, so its version
// before stays in force as well.
func (f *file) leave(old *file, w waits, unchanged time.Duration) (wait time.Duration) {
	if old == nil {
		return 0
	}
	named := make(map[api.Key]bool, len(f.claims))
	for _, c := range f.claims {
		named[c.key] = true
	}
	until := func(limit time.Duration) bool {
		if unchanged >= limit {
			return false
		}
		if wait == 0 || limit < wait {
			wait = limit
		}
		return true
	}
	cut := len(old.claims) > 0 && !named[old.claims[len(old.claims)-1].key]
	f.holdLast(old, cut, w, until)
	for _, c := range old.claims {
		if c.known() && c.key.GuardsAccess() && !named[c.key] && until(w.policies) {
			named[c.key] = true
			f.claims = append(f.claims, c.reserved())
		}
	}
	return wait
}

// holdLast keeps the version before of an access policy that is the last object of the file, if the file seems to be cut off: objects
// are missing, or the last line does not end, unlike before.
func (f *file) holdLast(old *file, cut bool, w waits, until func(time.Duration) bool) {
	if len(f.claims) == 0 {
		return
	}
	last := f.claims[len(f.claims)-1]
	if last.object == nil || !last.key.GuardsAccess() {
		return
	}
	limit := time.Duration(0)
	switch {
	case cut:
		limit = w.policies
	case old.ended && !f.ended:
		limit = w.cut
	}
	i := slices.IndexFunc(old.claims, func(c *claim) bool { return c.key == last.key && c.object != nil })
	if i < 0 || old.claims[i].object.Hash == last.object.Hash || !until(limit) {
		return
	}
	last.object, last.state = old.claims[i].object, stale
}

// vanish records that a file was removed whose access policies stay in force for now, and returns these. If there are none, nothing
// is left of the file.
func (l *ledger) vanish(path string) (policies []api.Key) {
	f := &file{leaving: true}
	if old := l.files[path]; old != nil {
		for _, c := range old.claims {
			if c.key.GuardsAccess() && c.known() {
				f.claims = append(f.claims, c.reserved())
				policies = append(policies, c.key)
			}
		}
	}
	if len(policies) == 0 {
		f = nil
	}
	l.put(path, f)
	return policies
}

// leavers returns the access policies of a file that are in force only because the file is not settled.
func (l *ledger) leavers(path string) (list []api.Key) {
	f := l.files[path]
	if f == nil || !f.leaving {
		return nil
	}
	for _, c := range f.claims {
		if c.key.GuardsAccess() && c.state == reserve {
			list = append(list, c.key)
		}
	}
	return list
}
