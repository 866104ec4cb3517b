package protocol

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// step is one row of the order table.
type step struct {
	typ resource.Type
	// remove: the step takes away what the type holds back, instead of bringing what is new.
	remove bool
	// bound: the type follows the clusters; it goes as far as they are acknowledged and no further.
	bound bool
}

// order is the whole order of sending. Before each message the table is read from the top, and the first row that
// has something to send and may send it does. So clusters come before what names them, the rows of a type that waits
// for an acknowledgement hold up nobody else, and what is gone is taken away when nothing points at it any more.
func order() [6]step {
	return [...]step{
		{typ: resource.Cluster},
		{typ: resource.Endpoint},
		{typ: resource.Listener, bound: true},
		{typ: resource.Route, bound: true},
		{typ: resource.Cluster, remove: true},
		{typ: resource.Endpoint, remove: true},
	}
}

// next appends the next message to write, if there is one and none is being written.
func (c *Core) next(out []Action) []Action {
	if c.busy {
		return out
	}
	if m, t := c.wants.message(c.variant, c.shared.controlPlane); m != nil {
		return c.writeAnswers(t, m, out)
	}
	if c.view.state == nil {
		return out
	}
	c.due = 0
	for {
		for _, s := range order() {
			cur := &c.cursors[s.typ]
			if cur.sub == nil {
				continue
			}
			if c.advance(s, cur); c.sendable(cur) {
				return c.write(s.typ, cur, out)
			}
		}
		again := false
		if out, again = c.retry(out); !again {
			return c.wait(out)
		}
	}
}

func (c *Core) sendable(cur *cursor) bool { return cur.flight != nil && len(cur.flight.messages) > 0 }

// write emits the next message of the type's flight.
func (c *Core) write(t resource.Type, cur *cursor, out []Action) []Action {
	f := cur.flight
	m := f.messages[0]
	f.messages = f.messages[1:]
	if len(f.messages) == 0 {
		f.messages = nil
	}
	c.nonces++
	cur.nonce = c.nonces
	s := f.newest()
	if s.first == 0 {
		s.first = cur.nonce
	}
	s.last = cur.nonce
	s.parts = append(s.parts, part{nonce: cur.nonce, resources: m.resources, removed: m.removed})
	c.busy, c.writing = true, cur
	return append(out, Action{Kind: Send, Type: t, Message: m, Nonce: formatNonce(cur.nonce, t), State: cur.at.state})
}

// sent: the message was written. From now on its acknowledgement is waited for.
func (c *Core) sent() {
	if c.writing != nil {
		if f := c.writing.flight; f != nil && len(f.messages) == 0 {
			f.newest().sent = c.clock
		}
	}
	c.busy, c.writing = false, nil
}

// advance moves the cursor as far as the row allows: silently, or by starting a flight.
func (c *Core) advance(s step, cur *cursor) {
	f := cur.flight
	switch {
	case c.sendable(cur):
		return
	case f != nil && f.bad():
		if !c.late(f) { // the other answers may be rejections, too
			c.waits(f)
			return
		}
		c.land(s.typ, cur)
	}
	switch f := cur.flight; {
	case s.remove:
		c.remove(s, cur)
	case f == nil || c.late(f):
		if to := c.aim(s, cur); to.state != nil {
			c.move(s.typ, cur, to)
		}
	case cur.requested() && (c.pins == nil || s.typ != resource.Route):
		// An answer need not wait until the last response is acknowledged, as long as it takes the type no further.
		// Only routes do if something is held back: what is pinned along depends on what is asked for.
		c.move(s.typ, cur, cur.at)
	case cur.requested() || c.differs(s.typ, cur, c.aim(s, cur).state):
		c.waits(f)
	}
}

// aim is the state the cursor is to go to; a client that came back with what is newer keeps it.
func (c *Core) aim(s step, cur *cursor) point {
	to := c.target(s)
	if to.state != nil && to.seq < cur.at.seq {
		return cur.at
	}
	return to
}

// differs reports whether the type's cursor has anything to do to get to a state.
func (c *Core) differs(t resource.Type, cur *cursor, to *resource.State) bool {
	if to == nil {
		return false
	}
	m := move{typ: t, from: cur.at.state, to: to}
	if t == resource.Endpoint {
		m.clustersFrom, m.clustersTo = cur.clusters, c.cursors[resource.Cluster].at.state
	}
	return !m.idle()
}

// target is the state the row may go to.
func (c *Core) target(s step) point {
	if !s.bound {
		return c.view
	}
	clusters := &c.cursors[resource.Cluster]
	if clusters.sub == nil {
		if c.awaitsClusters() {
			return point{}
		}
		c.cleared = c.view
		return c.view
	}
	// Not even first answers go to a client that came back, which has routes to what it had, or to one that rejected
	// its first clusters, before it has accepted some.
	careful := (c.linger != unneeded || clusters.strikes > 0) && c.trusted(clusters).state == nil
	if base := c.ceiling(); !careful && base.state != nil {
		k := c.knownClusters(base)
		if k.settled(c.view.state) {
			c.pending = nil
			return c.view
		}
		return c.short(s.typ, base, k)
	}
	c.waits(clusters.flight)
	return point{}
}

// awaitsClusters reports whether the client has asked for assignments, and will ask for clusters soon. An Envoy whose stream ended
// while a cluster warmed does so when its assignments are there (envoy, ClusterManagerImpl::updateClusterCounts pauses the type for
// as long): routes to new clusters have to wait for that. A client that asks for no clusters at all waits in vain, for a while.
func (c *Core) awaitsClusters() bool {
	asked := c.cursors[resource.Endpoint].sub
	if asked == nil || asked.names.Len() == 0 || c.waited-c.endpointsAsked >= int64(Patience) {
		return false
	}
	c.wakeAt(c.endpointsAsked + int64(Patience))
	return true
}

// ceiling is the state with the clusters that listeners and routes may refer to: the acknowledged ones, and those whose
// acknowledgement is overdue. While assignments a client asked for because of new clusters are on their way it stays where it
// is. First answers are not held: a client that has acknowledged nothing yet gets what goes with the clusters it was
// sent. The zero point says: not yet.
func (c *Core) ceiling() point {
	clusters, endpoints := &c.cursors[resource.Cluster], &c.cursors[resource.Endpoint]
	trusted := c.trusted(clusters)
	switch {
	case trusted.partial:
		// What the client had is no state routes could be of.
	case trusted.state == nil:
		if clusters.at.state != nil {
			c.cleared = clusters.at
		} else if c.cleared.state == nil {
			c.cleared = c.view
		}
	case c.cleared.state != nil && c.warming(endpoints):
	case trusted.seq >= c.cleared.seq:
		c.cleared = trusted
	}
	return c.cleared
}

// warming reports whether assignments for new clusters are on their way. In State-of-the-World a client that is being
// sent assignments may have asked for more with a nonce that was stale by then; it will ask again when it acknowledges.
func (c *Core) warming(endpoints *cursor) bool {
	if endpoints.forced.Len() > 0 {
		return true
	}
	f := endpoints.flight
	if f == nil {
		return false
	}
	return slices.ContainsFunc(f.stages[c.overdue(f):], func(s stage) bool { return s.fresh || s.first <= c.crossing })
}

// move brings the type to a state.
func (c *Core) move(t resource.Type, cur *cursor, to point) {
	forced, later := c.split(t, cur, to)
	m := move{
		variant: c.variant, typ: t, from: cur.at.state, to: to.state, sub: cur.sub, owed: cur.owed,
		forced: forced, all: cur.all, must: cur.first,
		held: cur.held, heldKnown: cur.heldSub == cur.sub,
	}
	if t == resource.Endpoint {
		m.clustersFrom, m.clustersTo = cur.clusters, c.cursors[resource.Cluster].at.state
		m.empties = c.cursors[resource.Cluster].sub == nil && c.variant == StateOfTheWorld
	}
	if m.idle() {
		cur.at = to
		cur.clusters = m.clustersTo
		return
	}
	c.start(cur, m, to)
	cur.forced, cur.all, cur.first = later, false, false
}

// split parts the names that must be answered: one that the target does not have yet but the newest state has is
// answered when the type gets there, not with "does not exist".
func (c *Core) split(t resource.Type, cur *cursor, to point) (now, later names) {
	if to.state == c.view.state || cur.forced.Len() == 0 {
		return cur.forced, names{}
	}
	now = cur.forced
	for n := range cur.forced.All() {
		if r, ok := to.state.Get(t, string(n)); ok && anything(r) {
			continue
		}
		if _, ok := c.view.state.Get(t, string(n)); ok {
			now, later = without(now, n), with(later, n)
		}
	}
	return now, later
}

// start makes the messages of a move and puts them into flight, behind what may already be there.
func (c *Core) start(cur *cursor, m move, to point) {
	tr := c.shared.moves.get(m.key(), func() *transition { return m.transition(c.shared.controlPlane) })
	before := cur.place()
	if tr.owed.Len() > 0 && tr.owed.Hash() != cur.owed.Hash() {
		cur.owedSince = to.seq
	}
	cur.at, cur.owed, cur.clusters = to, tr.owed, m.clustersTo
	if m.variant == StateOfTheWorld && (!m.typ.Wildcard() || len(tr.messages) > 0) {
		cur.held, cur.heldSub = tr.held, m.sub
	}
	f := cur.flight
	if len(tr.messages) == 0 {
		if f != nil { // nothing was added to what is in flight
			f.newest().forced = union(f.newest().forced, m.forced)
		}
		return
	}
	if f == nil {
		f = &flight{}
		cur.flight = f
	}
	f.messages = tr.messages
	f.add(stage{before: before, forced: m.forced, doubt: cur.doubt, all: m.all, fresh: m.from != nil && m.forced.Len() > 0})
	cur.doubt = names{}
}

// remove takes away what is gone, once listeners and routes have acknowledged a state without it.
func (c *Core) remove(s step, cur *cursor) {
	lingers := c.linger == running && (c.cursors[resource.Listener].sub == nil || c.cursors[resource.Route].sub == nil)
	if cur.owed.Len() == 0 || lingers {
		return
	}
	if cur.flight != nil && !c.late(cur.flight) || !c.past(resource.Listener, cur.owedSince) || !c.past(resource.Route, cur.owedSince) {
		for _, t := range []resource.Type{s.typ, resource.Listener, resource.Route} {
			c.waits(c.cursors[t].flight)
		}
		return
	}
	m := move{
		variant: c.variant, typ: s.typ, from: cur.at.state, to: cur.at.state, sub: cur.sub, owed: cur.owed, release: true,
		held: cur.held, heldKnown: cur.heldSub == cur.sub, clustersFrom: cur.clusters, clustersTo: cur.clusters,
	}
	c.start(cur, m, cur.at)
}

// past reports whether the type is acknowledged up to seq, or its acknowledgement is overdue. A type nobody asked for holds
// up nothing.
func (c *Core) past(t resource.Type, seq uint64) bool {
	cur := &c.cursors[t]
	if cur.sub == nil {
		return true
	}
	return c.trusted(cur).seq >= seq && !c.keepsUnknown(t, cur)
}

// keepsUnknown reports whether the client keeps something of the type of which only the name is known: it came back
// with it and rejected what should replace it. It may point at anything.
func (c *Core) keepsUnknown(t resource.Type, cur *cursor) bool {
	if c.pins == nil {
		return false
	}
	return slices.ContainsFunc(c.pins.keys, func(k pinKey) bool {
		r, ok := cur.acked().state.Get(t, k.name)
		return k.typ == t && ok && r.Size() == 0
	})
}
