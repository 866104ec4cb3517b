package protocol

import (
	"math"
	"slices"

	"github.com/pilotmesh/pilot/internal/ads/protocol/hold"
	"github.com/pilotmesh/pilot/internal/ads/protocol/nameset"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/ads/protocol/response"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// maxStages bounds what the core remembers of one type.
const maxStages = hold.MaxStages

// anyNonce is larger than every nonce.
const anyNonce = math.MaxUint64

// flight holds the unacknowledged responses of a type. Most flights have one stage. A flight has more if an
// acknowledgement takes longer than Patience.
type flight struct {
	// messages of the newest stage wait to be written.
	messages []*response.Message
	// answered are the last nonces that the client has answered, by wireOf.
	answered [2]uint64
	// stages are in the order of sending, the oldest first. There is at least one.
	stages []stage
	// rejected are the pins that NACKs of the flight added.
	rejected []reject.Pin
	// merged is set when stages were merged. The core then no longer knows what some responses contained.
	merged bool
	// resend is set when a NACK pinned nothing although the content must be sent again: the core no longer knows what the
	// response contained, or its bad content had been pinned since it was sent.
	resend bool
}

// stage is one move in flight: one response, or a sequence of responses that is acknowledged with its last one.
type stage struct {
	// before is the position of the type before the stage was sent.
	before position
	// first is the nonce of the first response written so far, and last has the last one by wireOf; 0 if none was written.
	first uint64
	last  [2]uint64
	// sentAt is when the last response was written, in Unix nanoseconds; 0 until then.
	sentAt int64
	// responses were written.
	responses []sentResponse
	// forced is what the stage answers besides the difference of two states.
	forced forcedSet
	// newNames is set if the stage answers names that a client which already had resources of the type asked for.
	newNames bool
	// removed are names that the responses of stages merged into this one removed, and sent the names whose content they
	// contained.
	removed, sent names
}

// sentResponse is one response of a stage. The resources of a response with virtual hosts are their route configuration.
type sentResponse struct {
	nonce     uint64
	typ       resource.Type
	resources []*resource.Resource
	removed   []string
	rejected  bool
}

func (f *flight) newest() *stage { return &f.stages[len(f.stages)-1] }

// start is the position before the flight, which is the last one that the client acknowledged.
func (f *flight) start() *position { return &f.stages[0].before }

// failed reports whether the client rejected a response of the flight, so that its content must be sent again.
func (f *flight) failed() bool { return len(f.rejected) > 0 || f.resend }

// response returns the response with the nonce; nil if the flight has none or is nil.
func (f *flight) response(nonce uint64) *sentResponse {
	if f == nil {
		return nil
	}
	for i := range f.stages {
		responses := f.stages[i].responses
		if j := slices.IndexFunc(responses, func(r sentResponse) bool { return r.nonce == nonce }); j >= 0 {
			return &responses[j]
		}
	}
	return nil
}

// answer notes that the client has answered the response with the nonce and all earlier ones of the type: it answers in order.
func (f *flight) answer(t resource.Type, nonce uint64) {
	f.answered[wireOf(t)] = max(f.answered[wireOf(t)], nonce)
}

// done reports whether the client has answered everything of a stage that was written.
func (f *flight) done(s *stage) bool { return s.last[0] <= f.answered[0] && s.last[1] <= f.answered[1] }

// allAnswered reports whether everything was written and answered.
func (f *flight) allAnswered() bool {
	return len(f.messages) == 0 && !slices.ContainsFunc(f.stages, func(s stage) bool { return !f.done(&s) })
}

// completed is the number of stages that the answers so far complete.
func (f *flight) completed() (n int) {
	for n < len(f.stages) && f.stages[n].first != 0 && f.done(&f.stages[n]) {
		n++
	}
	if n == len(f.stages) && len(f.messages) > 0 {
		n--
	}
	return n
}

// add appends a stage. If there are too many, it merges the second and the third stage: the oldest one is kept because it
// says what the client has not acknowledged for longest.
func (f *flight) add(s stage) {
	f.stages = append(f.stages, s)
	if len(f.stages) <= maxStages {
		return
	}
	old, next := &f.stages[1], &f.stages[2]
	next.before, next.first = old.before, old.first
	for i := range next.last {
		next.last[i] = max(next.last[i], old.last[i])
	}
	next.forced, next.newNames = old.forced.union(next.forced), old.newNames || next.newNames
	next.removed = nameset.Union(nameset.Union(next.removed, old.removed), removedNames(old.responses))
	next.sent = nameset.Union(nameset.Union(next.sent, old.sent), sentNames(old.responses))
	next.forced.strays = nameset.Union(next.forced.strays, leftovers(old.responses, f.start()))
	f.stages, f.merged = slices.Delete(f.stages, 1, 2), true
}

// forced is what all stages together answer besides the difference of two states.
func (f *flight) forced() (all forcedSet) {
	for i := range f.stages {
		all = all.union(f.stages[i].forced)
	}
	return all
}

// removedNames lists the names that responses removed.
func removedNames(responses []sentResponse) (all names) {
	for _, r := range responses {
		all = nameset.Union(all, nameset.Of(r.removed))
	}
	return all
}

// sentNames lists the names whose content the responses contained.
func sentNames(responses []sentResponse) names {
	var list []string
	for _, r := range responses {
		for _, res := range r.resources {
			list = append(list, res.Name())
		}
	}
	return nameset.Of(list)
}

// removed lists the names that responses of the flight with a smaller nonce removed. The client no longer has the
// content that it had under them before the flight.
func (f *flight) removed(nonce uint64) (all names) {
	for _, s := range f.stages {
		if s.first < nonce {
			all = nameset.Union(all, s.removed)
		}
		n := 0
		for n < len(s.responses) && s.responses[n].nonce < nonce {
			n++
		}
		all = nameset.Union(all, removedNames(s.responses[:n]))
	}
	return all
}

// formerContent is what the client had of one type before a flight and may still have.
type formerContent struct {
	typ   resource.Type
	start *position
	// removed are the names that the flight has removed.
	removed names
	// split is set if the flight has route configurations in the split form. A client may have rejected one response about such a resource and
	// accepted another.
	split bool
}

// former returns what the client had before the flight and may still have when it reads the response with the nonce.
func (f *flight) former(t resource.Type, nonce uint64) formerContent {
	return formerContent{typ: t, start: f.start(), removed: f.removed(nonce), split: f.split()}
}

// get is what the client had under a name before the flight, if no response has removed it.
func (h formerContent) get(name string) (*resource.Resource, bool) {
	if h.removed.Has(omap.Name(name)) {
		return nil, false
	}
	if r, ok := h.start.sent.state.Get(h.typ, name); ok {
		return r, true
	}
	return h.start.removals.Get(omap.Name(name))
}

// uncertain lists the names of a failed flight for which the server cannot know what the client has: the client was sent
// new content with something else that it rejected, and may or may not have applied the new content. These names are
// forced until the client accepts them. added are the ones that the client did not have before the flight. They
// become delayed removals, so that they are removed in the right order if they are no longer in the state.
func (f *flight) uncertain(former formerContent, cur *cursor) (list names, added []omap.Change[omap.Name, *resource.Resource]) {
	pinned := func(r *resource.Resource) bool {
		return slices.ContainsFunc(f.rejected, func(p reject.Pin) bool { return p.In(r) })
	}
	asked := f.forced().names
	var puts []omap.Change[omap.Name, omap.Unit]
	check := func(r *resource.Resource) {
		name := omap.Name(r.Name())
		old, had := former.get(r.Name())
		// Under a name that the client asks for, the former state has content that the client never had.
		same := had && old.ContentHash() == r.ContentHash() && !(former.split && asked.Has(name))
		if pinned(r) && !former.split || same {
			return
		}
		puts = append(puts, omap.Put(name, omap.Unit{}))
		if !had {
			added = append(added, omap.Put(name, r))
		}
	}
	for _, s := range f.stages {
		for _, response := range s.responses {
			if former.split && response.rejected {
				continue // The client has applied nothing of it.
			}
			for _, r := range response.resources {
				check(r)
			}
		}
		for n := range s.sent.All() { // The client may have any content that merged stages have sent.
			if !cur.sub.Has(string(n)) {
				continue
			}
			puts = append(puts, omap.Put(n, omap.Unit{}))
			if _, had := former.get(string(n)); !had {
				added = append(added, omap.Put(n, f.lastSent(former.typ, cur, n, pinned)))
			}
		}
	}
	return nameset.Union(former.removed, omap.With(names{}, puts...)), added
}

// lastSent is what the client was sent last under a name by stages that were merged, if it has not rejected that.
func (f *flight) lastSent(t resource.Type, cur *cursor, n omap.Name, pinned func(*resource.Resource) bool) *resource.Resource {
	r, ok := cur.sent.state.Get(t, string(n))
	if !ok {
		r, ok = cur.removals.Get(n)
	}
	if !ok || pinned(r) {
		return resource.UnknownContent(string(n))
	}
	return r
}

// overdueStages is the number of stages whose acknowledgement is overdue, counted from the oldest.
func (f *flight) overdueStages(t *timer) (n int) {
	for n < len(f.stages) && f.stages[n].sentAt != 0 && t.overdue(f.stages[n].sentAt) {
		n++
	}
	return n
}

// overdue reports whether the acknowledgements of all stages are overdue.
func (f *flight) overdue(t *timer) bool { return f.overdueStages(t) == len(f.stages) }

// wakeWhenOverdue notes that something is held back until the flight, which may be nil, is acknowledged or overdue.
func (f *flight) wakeWhenOverdue(t *timer) {
	if f == nil {
		return
	}
	if n := f.overdueStages(t); n < len(f.stages) && f.stages[n].sentAt != 0 {
		t.wakeAfterPatience(f.stages[n].sentAt)
	}
}

// confirmed is the state that the client acknowledged last, or a later one whose acknowledgement is overdue.
func (c *cursor) confirmed(t *timer) point {
	f := c.flight
	if f == nil || f.failed() {
		return c.acknowledged()
	}
	if n := f.overdueStages(t); n < len(f.stages) {
		return f.stages[n].before.sent
	}
	return c.sent
}

// reached is the state that the i-th stage brings the client to.
func (c *cursor) reached(i int) point {
	if i+1 < len(c.flight.stages) {
		return c.flight.stages[i+1].before.sent
	}
	return c.sent
}
