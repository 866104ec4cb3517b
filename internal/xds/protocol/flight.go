package protocol

import (
	"slices"
	"time"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Patience is how long an acknowledgement is waited for before newer state is sent, and before listeners and routes may
// refer to what is not acknowledged. Envoy withholds the acknowledgement of clusters while any cluster warms, for ever if
// a cluster waits for what never comes (envoy, ClusterManagerImpl::updateClusterCounts). A cluster that is well is warm
// after one exchange of assignments and, perhaps, one of secrets: 400 ms suffice for these. An edit that needs a new
// cluster and then a route to it waits twice at most, which leaves it within a second.
const Patience = 400 * time.Millisecond

// maxStages bounds what is remembered of one type: with more unacknowledged moves than that, two become one.
const maxStages = 4

// flight is what was sent of a type and is not acknowledged yet: most of the time one stage, more if an acknowledgement
// stays away for longer than Patience.
type flight struct {
	messages []*Message // of the newest stage, not written yet
	stages   []stage    // the oldest first, at least one
	rejected []Pin      // what was rejected of it
	joined   bool       // stages were joined: what some responses held is forgotten
	lost     bool       // one of those was rejected
}

// stage is one move: a response, or a sequence of them that is acknowledged when the last one is.
type stage struct {
	before      cursorPlace // where the type stood before it
	first, last uint64      // nonces, 0 if none was written yet
	sent        int64       // when the last response was written; 0: not yet
	parts       []part      // what was written
	// forced and all are what it answers beyond the difference.
	forced names
	doubt  names
	all    bool
	fresh  bool
	// gone is what responses took away of which nothing else is remembered.
	gone names
}

// part is one response of a stage.
type part struct {
	nonce     uint64
	resources []*resource.Resource
	removed   []string
	rejected  bool
}

func (f *flight) newest() *stage { return &f.stages[len(f.stages)-1] }

// before is where the type stands according to the client's answers.
func (f *flight) before() *cursorPlace { return &f.stages[0].before }

// bad reports whether a response of the flight was rejected and what it held is to be sent again.
func (f *flight) bad() bool { return len(f.rejected) > 0 || f.lost }

// part is the response of the flight that carried the nonce; nil if there is none.
func (f *flight) part(nonce uint64) *part {
	if f == nil {
		return nil
	}
	for i := range f.stages {
		parts := f.stages[i].parts
		if j := slices.IndexFunc(parts, func(p part) bool { return p.nonce == nonce }); j >= 0 {
			return &parts[j]
		}
	}
	return nil
}

// answered is the number of stages that the answer to a nonce completes.
func (f *flight) answered(nonce uint64) (n int) {
	for n < len(f.stages) && f.stages[n].last != 0 && f.stages[n].last <= nonce {
		n++
	}
	if n == len(f.stages) && len(f.messages) > 0 {
		n--
	}
	return n
}

// add puts a stage behind the others. If there are too many, the second and the third become one: the oldest says what
// the client has been waiting for.
func (f *flight) add(s stage) {
	f.stages = append(f.stages, s)
	if len(f.stages) <= maxStages {
		return
	}
	old, next := &f.stages[1], &f.stages[2]
	next.before, next.first = old.before, old.first
	next.forced, next.doubt = union(old.forced, next.forced), union(old.doubt, next.doubt)
	next.all, next.fresh = old.all || next.all, old.fresh || next.fresh
	next.gone = union(union(next.gone, old.gone), removed(old.parts))
	f.stages, f.joined = slices.Delete(f.stages, 1, 2), true
}

// asked is what all stages together answer beyond the difference.
func (f *flight) asked() (all stage) {
	for i := range f.stages {
		s := &f.stages[i]
		all.forced, all.doubt, all.all = union(all.forced, s.forced), union(all.doubt, s.doubt), all.all || s.all
	}
	return all
}

// removed lists what responses took away.
func removed(parts []part) names {
	var list []omap.Change[omap.Name, omap.Unit]
	for _, p := range parts {
		for _, n := range p.removed {
			list = append(list, omap.Put(omap.Name(n), omap.Unit{}))
		}
	}
	return names{}.With(list...)
}

// gone lists what responses of the flight took away. The client does not have it any longer, or has what came later.
func (f *flight) gone() (all names) {
	for _, s := range f.stages {
		all = union(union(all, s.gone), removed(s.parts))
	}
	return all
}

// had is what the client had under a name before the flight, if it has not been taken away since.
func (f *flight) had(t resource.Type, name string) (*resource.Resource, bool) {
	if f.gone().Has(omap.Name(name)) {
		return nil, false
	}
	if r, ok := f.before().at.state.Get(t, name); ok {
		return r, true
	}
	return f.before().owed.Get(omap.Name(name))
}

// doubtful are the names of which nobody can tell what the client has: it was sent something new, and may or may not have
// taken it although it rejected something else. They are sent again, whatever they are to be now, until they are accepted.
// What was not there before comes back as what the client may have, so that it is taken away in order if it is gone.
func (f *flight) doubtful(t resource.Type, cur *cursor) (doubt names, added []omap.Change[omap.Name, *resource.Resource]) {
	blamed := func(r *resource.Resource) bool {
		return slices.ContainsFunc(f.rejected, func(p Pin) bool { return p.in(r) })
	}
	var puts []omap.Change[omap.Name, omap.Unit]
	look := func(r *resource.Resource) {
		name := omap.Name(r.Name())
		old, had := f.had(t, r.Name())
		if blamed(r) || had && old.ContentHash() == r.ContentHash() {
			return
		}
		puts = append(puts, omap.Put(name, omap.Unit{}))
		if !had {
			added = append(added, omap.Put(name, r))
		}
	}
	for _, s := range f.stages {
		for _, p := range s.parts {
			for _, r := range p.resources {
				look(r)
			}
		}
	}
	if f.joined { // what is forgotten is in the state that was reached, or waits to be taken away
		for ch := range resource.Diff(f.before().at.state.Layers(t), cur.at.state.Layers(t)) {
			if ch.New != nil && cur.sub.has(ch.Name) {
				look(ch.New)
			}
		}
		for _, r := range cur.owed.All() {
			look(r)
		}
	}
	return union(f.gone(), names{}.With(puts...)), added
}

// overdue is the number of stages whose acknowledgement is not waited for any longer.
func (c *Core) overdue(f *flight) (n int) {
	for n < len(f.stages) && f.stages[n].sent != 0 && c.waited-f.stages[n].sent >= int64(Patience) {
		n++
	}
	return n
}

// late reports whether no acknowledgement of the flight is waited for any longer.
func (c *Core) late(f *flight) bool { return c.overdue(f) == len(f.stages) }

// trusted is the state the client acknowledged last, or a later one whose acknowledgement is overdue.
func (c *Core) trusted(cur *cursor) point {
	f := cur.flight
	if f == nil || f.bad() {
		return cur.acked()
	}
	if n := c.overdue(f); n < len(f.stages) {
		return f.stages[n].before.at
	}
	return cur.at
}

// waits notes that something is held back until a flight is acknowledged or late.
func (c *Core) waits(f *flight) {
	if f == nil {
		return
	}
	if n := c.overdue(f); n < len(f.stages) && f.stages[n].sent != 0 {
		c.wakeAt(f.stages[n].sent + int64(Patience))
	}
}

// wakeAt notes that something is held back until a time, in nanoseconds, at most.
func (c *Core) wakeAt(due int64) {
	if c.due == 0 || due < c.due {
		c.due = due
	}
}

// wait asks to be told when the first acknowledgement that something waits for is overdue.
func (c *Core) wait(out []Action) []Action {
	if c.due == 0 || c.waiting {
		return out
	}
	c.waiting = true
	return append(out, Action{Kind: Wait, For: time.Duration(c.due - c.clock)})
}
