package protocol

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/ads/protocol/claim"
	"github.com/pilotmesh/pilot/internal/ads/protocol/content"
	"github.com/pilotmesh/pilot/internal/ads/protocol/nameset"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/ads/protocol/transition"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// step is one row of the order table.
type step struct {
	typ resource.Type
	// removes is set if the step sends the delayed removals of the type instead of its new content.
	removes bool
	// followsClusters is set if the resources of the type refer to clusters. They are sent only as far as these clusters
	// are acknowledged.
	followsClusters bool
}

// order is the whole order of sending. Before each message the core reads the table from the top and takes the first row
// that has something to send and may send it. So clusters go before what refers to them, a type that waits for an
// acknowledgement delays no other type, and resources are removed when nothing refers to them any more.
func order() [8]step {
	return [...]step{
		{typ: resource.Cluster},
		{typ: resource.Endpoint},
		{typ: resource.Listener, followsClusters: true},
		{typ: resource.Route, followsClusters: true},
		{typ: resource.NameTable},
		{typ: resource.Bootstrap},
		{typ: resource.Cluster, removes: true},
		{typ: resource.Endpoint, removes: true},
	}
}

// next appends the next message to write, if there is one and the shell is not writing another.
func (c *Core) next(out []Action) []Action {
	if c.sending.active {
		return out
	}
	if len(c.demand.absent) > 0 {
		return c.writeAbsent(out)
	}
	if m, t := c.answers(); m != nil {
		return c.writeAnswers(t, m, out)
	}
	if c.view.state == nil {
		return out
	}
	if c.split.retracted.Len() > 0 {
		return c.writeRetraction(out)
	}
	c.timer.wake = 0
	if c.demand.heldSince != 0 {
		c.timer.wakeAfterPatience(c.demand.heldSince)
	}
	for {
		for _, s := range order() {
			cur := &c.cursors[s.typ]
			if cur.sub == nil {
				continue
			}
			if c.advance(s, cur); cur.sendable() {
				return c.write(cur, out)
			}
		}
		again := false
		if out, again = c.releaseSuspects(out); !again {
			return c.timer.start(out)
		}
	}
}

// write emits the next message of the type's flight.
func (c *Core) write(cur *cursor, out []Action) []Action {
	f := cur.flight
	m := f.messages[0]
	f.messages = f.messages[1:]
	if len(f.messages) == 0 {
		f.messages = nil
	}
	c.lastNonce++
	n := c.lastNonce
	if m.Type == resource.VirtualHost {
		c.split.nonce = n
	} else {
		cur.nonce = n
	}
	s := f.newest()
	if s.first == 0 {
		s.first = n
	}
	s.last[wireOf(m.Type)] = n
	s.responses = append(s.responses, sentResponse{nonce: n, typ: m.Type, resources: m.Content, removed: m.Names})
	c.sending = sending{active: true, cursor: cur}
	return append(out, Action{Kind: Send, Type: m.Type, Message: m, Nonce: formatNonce(n, m.Type), State: cur.sent.state})
}

// finishWrite notes that the shell has written the message. The wait for its acknowledgement begins now.
func (c *Core) finishWrite() {
	if cur := c.sending.cursor; cur != nil {
		if f := cur.flight; f != nil && len(f.messages) == 0 {
			f.newest().sentAt = c.timer.now
		}
	}
	c.sending = sending{}
}

// advance brings the cursor as far as the step allows. It starts a flight unless there is nothing to send.
func (c *Core) advance(s step, cur *cursor) {
	f := cur.flight
	switch {
	case cur.sendable():
		return
	case cur.open.resume != nil: // of a type whose content is not known yet
		since := c.split.since
		if c.awaitsHostVersions() {
			since += int64(claim.Patience - Patience)
		}
		if !c.timer.overdue(since) {
			c.timer.wakeAfterPatience(since)
			return
		}
		c.resume(s.typ, cur.open.resume)
	case f != nil && f.failed():
		if !f.overdue(&c.timer) {
			f.wakeWhenOverdue(&c.timer) // The other answers may be NACKs, too.
			return
		}
		c.endFlight(s.typ, cur)
	}
	switch f := cur.flight; {
	case s.removes:
		c.sendRemovals(s, cur)
	case f == nil || f.overdue(&c.timer):
		if to := c.nextPoint(s, cur); to.state != nil {
			c.move(s.typ, cur, to)
		}
	case cur.open.unanswered() && (c.pinning.pins == nil || s.typ != resource.Route):
		// A subscription need not wait for an acknowledgement if its answer does not bring the type to another state.
		// Routes must wait if something is pinned, because the content pinned with it depends on the subscription.
		c.move(s.typ, cur, cur.sent)
	case cur.open.unanswered() || c.differs(s.typ, cur, c.nextPoint(s, cur).state):
		f.wakeWhenOverdue(&c.timer)
	}
}

// nextPoint is the state that the cursor is to reach. A client that reconnected with a newer state keeps that.
func (c *Core) nextPoint(s step, cur *cursor) point {
	to := c.target(s)
	if to.state != nil && to.seq < cur.sent.seq {
		return cur.sent
	}
	return to
}

// differs reports whether the cursor must send something to reach a state.
func (c *Core) differs(t resource.Type, cur *cursor, to *resource.State) bool {
	if to == nil {
		return false
	}
	m := transition.Move{Type: t, From: cur.sent.state, To: to}
	if t == resource.Endpoint {
		m.ClustersFrom, m.ClustersTo = cur.clusters, c.cursors[resource.Cluster].sent.state
	}
	return !m.Noop()
}

// target is the newest state that the step may send. The zero point means that it must wait.
func (c *Core) target(s step) point {
	if !s.followsClusters {
		return c.view
	}
	clusters := &c.cursors[resource.Cluster]
	if clusters.sub == nil {
		if c.expectsClusterRequest() {
			return point{}
		}
		c.bound.usable = c.view
		return c.view
	}
	usable := c.updateUsable()
	// The first listeners and routes normally go without waiting. They must wait if the client reconnected, because it
	// has routes to the clusters it had, or if it has rejected its first clusters.
	careful := c.linger != lingerUnneeded || clusters.rejections.Consecutive > 0
	if usable.state == nil || careful && clusters.confirmed(&c.timer).state == nil {
		clusters.flight.wakeWhenOverdue(&c.timer)
		return point{}
	}
	k := c.clusterStatesSince(usable)
	if k.Equal(c.view.state) {
		c.bound.pending = nil
		return c.view
	}
	return c.withoutPending(s.typ, usable, k)
}

// expectsClusterRequest reports whether the client has asked for assignments and will soon ask for clusters. An Envoy
// whose stream ended while a cluster warmed asks for clusters only when its assignments have arrived (envoy,
// ClusterManagerImpl::updateClusterCounts pauses the type until then), and routes to new clusters must wait for that. For
// a client that never asks for clusters, the wait ends after Patience.
func (c *Core) expectsClusterRequest() bool {
	sub := c.cursors[resource.Endpoint].sub
	if sub == nil || sub.Names.Len() == 0 || c.timer.overdue(c.bound.edsRequested) {
		return false
	}
	c.timer.wakeAfterPatience(c.bound.edsRequested)
	return true
}

// updateUsable returns the state whose clusters listeners and routes may refer to: these are acknowledged, or their
// acknowledgement is overdue. The state does not advance while assignments are due that the client asked for because of
// new clusters. A client that has not acknowledged anything yet may use the clusters that it was sent. The zero point
// means that there is no such state yet.
func (c *Core) updateUsable() point {
	clusters, endpoints := &c.cursors[resource.Cluster], &c.cursors[resource.Endpoint]
	b := &c.bound
	confirmed := clusters.confirmed(&c.timer)
	switch {
	case confirmed.partial:
		// This state only says which clusters the client had. It has no routes.
	case confirmed.state == nil:
		if clusters.sent.state != nil {
			b.usable = clusters.sent
		} else if b.usable.state == nil {
			b.usable = c.view
		}
	case b.usable.state != nil && c.assignmentsDue(endpoints):
	case confirmed.seq >= b.usable.seq:
		b.usable = confirmed
	}
	return b.usable
}

// assignmentsDue reports whether assignments for new clusters are requested or in flight. A State-of-the-World client
// may have asked for more with a nonce that was stale because other assignments were in flight. It asks again when it
// acknowledges these, so they count, too.
func (c *Core) assignmentsDue(endpoints *cursor) bool {
	if endpoints.open.names.Len() > 0 {
		return true
	}
	f := endpoints.flight
	if f == nil {
		return false
	}
	return slices.ContainsFunc(f.stages[f.overdueStages(&c.timer):], func(s stage) bool {
		return s.newNames || s.first <= c.bound.edsNonceAtCDSAck
	})
}

// move brings the type to a state.
func (c *Core) move(t resource.Type, cur *cursor, to point) {
	forced, later := c.splitForced(t, cur, to)
	m := transition.Move{
		Variant: c.variant, Type: t, From: cur.sent.state, To: to.state, Sub: cur.sub, Removals: cur.removals,
		Forced: forced, All: cur.open.all, MustRespond: cur.open.initial,
		ContentSum: cur.contentSum, ContentSumKnown: cur.contentSumOf == cur.sub,
	}
	var strays names
	if t == resource.Route && c.split.on {
		m.Split, m.OnDemand = true, c.demand.on
		m.Strays, strays = splitStrays(cur, to.state)
	}
	if transition.DelaysRemovals(t) && slices.ContainsFunc(c.pinning.pins.All(), func(k reject.Key) bool { return k.Type == t }) {
		m.Pins = c.pinning.pins
	}
	if t == resource.Endpoint {
		m.ClustersFrom, m.ClustersTo = cur.clusters, c.cursors[resource.Cluster].sent.state
		m.EmptyIfMissing = c.cursors[resource.Cluster].sub == nil && c.variant == StateOfTheWorld
	}
	if m.Noop() {
		cur.sent = to
		cur.clusters = m.ClustersTo
		return
	}
	tr := c.startMove(cur, m, to)
	cur.open.names, cur.open.all, cur.open.initial = later, false, false
	cur.open.strays = nameset.Union(strays, tr.Gone)
}

// splitForced separates the forced names that can be answered now from later ones. If the newest state has a name and the
// target does not have it yet, the name is answered when the type gets there, and not with "does not exist".
func (c *Core) splitForced(t resource.Type, cur *cursor, to point) (now, later names) {
	now = cur.open.names
	if to.state == c.view.state || now.Len() == 0 {
		return now, names{}
	}
	for n := range cur.open.names.All() {
		if r, ok := to.state.Get(t, string(n)); ok && content.Known(r) {
			continue
		}
		if _, ok := c.view.state.Get(t, string(n)); ok {
			now, later = nameset.Without(now, n), nameset.With(later, n)
		}
	}
	return now, later
}

// startMove makes the messages of a move and adds them to the flight of the type.
func (c *Core) startMove(cur *cursor, m transition.Move, to point) *transition.Result {
	tr := c.shared.moves.Get(m.Key(), func() *transition.Result { return m.Respond(c.shared.controlPlane) })
	before := cur.position
	if tr.Removals.Len() > 0 && tr.Removals.Hash() != cur.removals.Hash() {
		cur.removalsSince = to.seq
	}
	cur.sent, cur.removals, cur.clusters = to, tr.Removals, m.ClustersTo
	if m.Variant == StateOfTheWorld && (!m.Type.Wildcard() || len(tr.Messages) > 0) {
		cur.contentSum, cur.contentSumOf = tr.ContentSum, m.Sub
	}
	f := cur.flight
	if len(tr.Messages) == 0 {
		if f != nil { // The forced names and the strays belong to the responses in flight.
			forced := &f.newest().forced
			forced.names, forced.strays = nameset.Union(forced.names, m.Forced), nameset.Union(forced.strays, m.Strays)
		}
		return tr
	}
	if f == nil {
		f = &flight{}
		cur.flight = f
	}
	f.messages = tr.Messages
	if m.Type == resource.Cluster {
		for _, message := range tr.Messages {
			c.forgetAssignments(nameset.Of(message.Names))
		}
	}
	forced := forcedSet{names: m.Forced, uncertain: cur.open.uncertain, strays: m.Strays, all: m.All}
	f.add(stage{before: before, forced: forced, newNames: m.From != nil && m.Forced.Len() > 0})
	cur.open.uncertain = names{}
	return tr
}

// sendRemovals removes resources from the client once listeners and routes have acknowledged a state without them.
func (c *Core) sendRemovals(s step, cur *cursor) {
	listeners, routes := &c.cursors[resource.Listener], &c.cursors[resource.Route]
	lingers := c.linger == lingerRunning && (listeners.sub == nil || routes.sub == nil)
	if cur.removals.Len() == 0 || lingers {
		return
	}
	if cur.flight != nil && !cur.flight.overdue(&c.timer) ||
		!c.confirmedUpTo(resource.Listener, cur.removalsSince) || !c.confirmedUpTo(resource.Route, cur.removalsSince) {
		for _, waitsFor := range []*cursor{cur, listeners, routes} {
			waitsFor.flight.wakeWhenOverdue(&c.timer)
		}
		return
	}
	m := transition.Move{
		Variant: c.variant, Type: s.typ, From: cur.sent.state, To: cur.sent.state, Sub: cur.sub,
		Removals: cur.removals, SendRemovals: true, ContentSum: cur.contentSum, ContentSumKnown: cur.contentSumOf == cur.sub,
		ClustersFrom: cur.clusters, ClustersTo: cur.clusters,
	}
	c.startMove(cur, m, cur.sent)
}

// confirmedUpTo reports whether the type is acknowledged up to an order number, or the acknowledgement is overdue. A type
// that the client has not asked for delays nothing.
func (c *Core) confirmedUpTo(t resource.Type, seq uint64) bool {
	cur := &c.cursors[t]
	if cur.sub == nil {
		return true
	}
	if t == resource.Route && c.split.blind {
		return false
	}
	return cur.confirmed(&c.timer).seq >= seq && !c.keepsUnknownContent(t, cur)
}

// keepsUnknownContent reports whether the client has a resource of the type that the server knows only by name: the
// client reconnected with it and rejected its replacement, or is sent the replacement once more. That resource may
// refer to any cluster.
func (c *Core) keepsUnknownContent(t resource.Type, cur *cursor) bool {
	isUnknown := func(k reject.Key) bool {
		r, ok := cur.acknowledged().state.Get(t, k.Name)
		return k.Type == t && ok && claim.Unknown(r)
	}
	return slices.ContainsFunc(c.pinning.pins.All(), isUnknown) || slices.ContainsFunc(cur.rejections.Released, isUnknown)
}
