package protocol

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/ads/protocol/nameset"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/ads/protocol/transition"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// nack processes a NACK. It pins the rejected content and returns the type to the position before the flight, so that
// everything else that changed is sent again, and the rejected bytes are not. If the client has yet to answer other
// responses of the flight, the core first waits for these answers, at most for Patience: they may be NACKs, too.
func (c *Core) nack(t resource.Type, cur *cursor, nonce uint64, q *Request, out []Action) []Action {
	f := cur.flight
	r := f.response(nonce)
	if r == nil && (f == nil || !f.merged) || r != nil && r.rejected {
		return out // The client repeats itself, or the nonce belongs to no response in flight.
	}
	reason := request.StatusText(q.Detail, maxReason)
	cur.rejections.Reason = reason
	out = append(out, Action{Kind: Rejected, Type: t, Text: reason, State: cur.sent.state})
	if r == nil {
		// The core no longer knows what the response contained. All of it is sent again.
		f.resend, f.messages = true, nil
	} else {
		r.rejected = true
		out = c.pinSuspects(t, cur, r, out)
	}
	if f.allAnswered() {
		c.endFlight(t, cur)
	}
	return out
}

// pinSuspects holds back content that may have caused the NACK of a response.
func (c *Core) pinSuspects(t resource.Type, cur *cursor, r *sentResponse, out []Action) []Action {
	f := cur.flight
	cur.rejections.Consecutive++
	s := c.findSuspects(cur, t, r)
	if s.alreadyPinned {
		// The response was sent before its bad content was pinned. The client has not applied the rest of it either.
		cur.rejections.Consecutive--
		if cur.rejections.Repeated < reject.MaxConsecutive {
			cur.rejections.Repeated++
			f.resend, f.messages = true, nil
		}
		return out
	}
	// If there is nothing to pin, or too much, the client keeps its content until the content changes.
	if len(s.pins) > 0 && c.pinning.pins.Len()+len(s.pins) <= reject.MaxPins {
		f.rejected = append(f.rejected, s.pins...)
		f.messages = nil
		c.pinning.pins = c.pinning.pins.With(s.pins)
		if pins := cur.rejections.Follow(s.pins, s.certain); len(pins) > 0 {
			out = append(out, Action{Kind: Pinned, Type: t, Pins: pins, Text: cur.rejections.Reason})
		}
	}
	return out
}

// endFlight ends the flight of the type, because all its responses are answered or the missing answers are overdue. If
// the client rejected one, the type returns to its position before the flight.
func (c *Core) endFlight(t resource.Type, cur *cursor) {
	f := cur.flight
	cur.flight = nil
	if !f.failed() {
		return
	}
	former := f.former(t, anyNonce)
	uncertain, added := f.uncertain(former, cur)
	cur.position = *former.start
	for n := range former.removed.All() {
		cur.dropRemoval(n)
	}
	asked := f.forced()
	cur.open.uncertain = nameset.Union(asked.uncertain, uncertain)
	cur.open.strays = nameset.Union(cur.open.strays, asked.strays)
	for i := range f.stages {
		cur.open.strays = nameset.Union(cur.open.strays, leftovers(f.stages[i].responses, former.start))
	}
	if t == resource.Cluster {
		// The client drops the assignments of clusters that it drops. Clusters that are sent again need them again.
		c.cursors[resource.Endpoint].clusters = cur.sent.state
		c.forgetAssignments(cur.open.uncertain)
	}
	if transition.DelaysRemovals(t) && len(added) > 0 {
		cur.removals, cur.removalsSince = omap.With(cur.removals, added...), c.published.seq
	}
	cur.open.names = nameset.Union(nameset.Union(asked.names, cur.open.names), cur.open.uncertain)
	cur.open.all = cur.open.all || asked.all
	var absent names
	for i := range f.rejected {
		p := &f.rejected[i]
		name := omap.Name(p.Name)
		if r, ok := cur.removals.Get(name); ok && p.Piece == "" && r.ContentHash() == p.Rejected {
			cur.dropRemoval(name) // The client rejected it, so it does not have it.
		}
		// A requested name is answered with the content that is held instead, and not at all if there is none. The former state may have other content
		// under the name, which the client never had.
		if p.Piece == "" && p.Held == nil && !cur.open.uncertain.Has(name) && cur.open.names.Has(name) {
			cur.open.names, absent = nameset.Without(cur.open.names, name), nameset.With(absent, name)
		}
	}
	cur.sent.state = c.without(t, cur.sent.state, absent)
	if !transition.DelaysRemovals(t) {
		c.postponeRemovals()
	}
	c.updateView()
}

// forgetAssignments notes that the client may have dropped the assignments of some clusters, because it dropped these. A
// delta client unsubscribes from such an assignment. A State-of-the-World client may name it again before the server hears
// that it was dropped, so the assignment is sent again with the cluster, also after a NACK of other assignments.
func (c *Core) forgetAssignments(clusters names) {
	if c.variant == Delta || clusters.Len() == 0 {
		return
	}
	endpoints := &c.cursors[resource.Endpoint]
	endpoints.clusters = c.without(resource.Cluster, endpoints.clusters, clusters)
	if endpoints.flight != nil {
		for i := range endpoints.flight.stages {
			before := &endpoints.flight.stages[i].before
			before.clusters = c.without(resource.Cluster, before.clusters, clusters)
		}
	}
}

// hiddenKey is everything that the result of without depends on.
type hiddenKey struct {
	state *resource.State
	typ   resource.Type
	names omap.Hash
}

// without returns a state, which may be nil, without some resources of a type.
func (c *Core) without(t resource.Type, s *resource.State, hidden names) *resource.State {
	if s == nil || hidden.Len() == 0 {
		return s
	}
	return c.shared.hidden.Get(hiddenKey{s, t, hidden.Hash()}, func() *resource.State {
		var over []omap.Change[omap.Name, *resource.Resource]
		for n := range hidden.All() {
			over = append(over, omap.Put(n, resource.Hide(string(n))))
		}
		out := *s
		out.Types[t] = s.Layers(t).On(omap.With(transition.Resources{}, over...))
		return &out
	})
}

// postponeRemovals makes all delayed removals wait for new acknowledgements of listeners and routes. After a NACK of
// these, Envoy may still route to clusters whose removal was pending.
func (c *Core) postponeRemovals() {
	c.renumber()
	for t := range c.cursors {
		cur := &c.cursors[t]
		cur.removalsSince = c.published.seq
		if cur.flight != nil {
			for i := range cur.flight.stages {
				cur.flight.stages[i].before.removalsSince = c.published.seq
			}
		}
	}
}

// releaseSuspects releases the next group of suspects of some type that has nothing else to do. It reports whether there
// may be something to send.
func (c *Core) releaseSuspects(out []Action) ([]Action, bool) {
	for t := range c.cursors {
		cur := &c.cursors[t]
		idle := cur.flight == nil && cur.sent.state == c.view.state && !cur.open.unanswered()
		if idle && cur.rejections.MayRelease() {
			return c.releaseGroup(resource.Type(t), cur, out), true
		}
	}
	return out, false
}

// isBlocked reports whether released virtual hosts are not shown because the client has rejected the combinations that they
// would make. Nothing would be sent, and the next group would be released together with them.
func (c *Core) isBlocked(group []reject.Key) bool {
	for _, k := range group {
		route, ok := c.published.state.Get(k.Type, k.Name)
		if !ok || k.Piece == "" || k.In(c.view.state) || !c.pinning.pins.HasWhole(k.Name) {
			return false
		}
		piece, ok := route.Pieces().Get(omap.Name(k.Piece))
		hidden := func(cluster string) bool {
			_, shown := c.view.state.Get(resource.Cluster, cluster)
			return !shown
		}
		if !ok || slices.ContainsFunc(piece.Refs(), hidden) {
			return false
		}
	}
	return true
}

// releaseGroup unpins the next group of suspects so that it is sent again. A group that contains the bad content is split
// further instead, down to a single pin, which stays.
func (c *Core) releaseGroup(t resource.Type, cur *cursor, out []Action) []Action {
	group, bad := cur.rejections.NextGroup(cur.sent.state)
	switch {
	case bad && len(group) == 1:
		return append(out, Action{Kind: Pinned, Type: t, Pins: reject.PinsOf(group), Text: cur.rejections.Reason})
	case bad:
		cur.rejections.Bisect(group)
		return out
	}
	pins := c.pinning.pins
	c.pinning.pins = pins.Without(group)
	if transition.DelaysRemovals(t) {
		c.renumber()
	} else {
		c.postponeRemovals() // The view no longer keeps the clusters of the content that the client had instead.
	}
	c.updateView()
	if c.isBlocked(group) {
		c.pinning.pins = pins
		c.updateView()
		cur.rejections.PutBack(group)
		return out
	}
	cur.rejections.Released, cur.rejections.Blocked = group, 0
	if slices.ContainsFunc(group, func(k reject.Key) bool { return !cur.sub.Has(k.Name) }) {
		cur.rejections.LearnNothing() // What the client does not ask for is not sent, so no ACK is about it.
	}
	for _, k := range group {
		// If the name was forced when it was rejected, two states need not differ in it. So it is forced again.
		if k.Piece == "" && cur.sub.Has(k.Name) && k.In(c.published.state) {
			cur.open.names = nameset.With(cur.open.names, omap.Name(k.Name))
		}
	}
	return out
}
