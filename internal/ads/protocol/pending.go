package protocol

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// pending is what listeners and routes may be sent while some clusters are not acknowledged: the newest state, except for
// resources that refer to such a cluster. Those stay as the client was sent them last until the cluster is acknowledged or
// its acknowledgement is overdue. The arrays have one element for listeners and one for routes; see pendingIndex.
type pending struct {
	key pendingKey
	// states are the newest state without held-back content; nil if nothing of the type is held back.
	states [2]*resource.State
	// differsFromBase is set if something that is held back differs from the base state, too.
	differsFromBase [2]bool
}

// pendingKey is everything that pending depends on. Streams of a class mostly have equal keys.
type pendingKey struct {
	view, base *resource.State
	clusters   clusterStates
	// sent are the states that listeners and routes were sent last.
	sent [2]*resource.State
	// newer is set if that state is newer than base.
	newer [2]bool
	// forced is the hash of the route configurations that the client asks for and may not have.
	forced omap.Hash
}

// clusterStates are the states whose clusters the client may have: the one whose clusters listeners and routes may refer
// to, and the states sent since. A cluster counts as acknowledged only if it is the same in all of them. A cluster
// that was removed and added again is therefore usable only when the addition is acknowledged. Unused elements are nil.
type clusterStates [maxStages + 2]*resource.State

// clusterStatesSince lists the base state and the states of clusters that were sent since.
func (c *Core) clusterStatesSince(base point) (k clusterStates) {
	clusters := &c.cursors[resource.Cluster]
	k[0], k[1] = base.state, clusters.sent.state
	if f := clusters.flight; f != nil {
		for i, s := range f.stages[f.overdueStages(&c.timer):] {
			k[2+i] = s.before.sent.state
		}
	}
	return k
}

// equal reports whether all clusters of a state are acknowledged.
func (k *clusterStates) equal(s *resource.State) bool {
	return !slices.ContainsFunc(k[:], func(o *resource.State) bool {
		return o != nil && !o.Types[resource.Cluster].Same(s.Types[resource.Cluster])
	})
}

// pendingIndex is the index of listeners and of routes in the arrays of pending.
func pendingIndex(t resource.Type) int { return int(t - resource.Listener) }

// withoutPending is the newest state as listeners or routes may be sent it while clusters that differ from the base state
// are not acknowledged. If something is held back, the revision and the order number are an older state's, which the
// result contains completely.
func (c *Core) withoutPending(t resource.Type, base point, k clusterStates) point {
	p := c.pendingAt(base, k)
	i, sent := pendingIndex(t), c.cursors[t].sent
	if p.states[i] == nil {
		return c.view
	}
	c.cursors[resource.Cluster].flight.wakeWhenOverdue(&c.timer)
	c.cursors[resource.Endpoint].flight.wakeWhenOverdue(&c.timer)
	to := point{state: p.states[i], seq: base.seq}
	if p.differsFromBase[i] || sent.seq > base.seq {
		to.seq = sent.seq
	}
	return c.withPins(to) // Held-back content may be older than a pin.
}

// pendingAt returns the last result if it is still valid, else a new one.
func (c *Core) pendingAt(base point, clusters clusterStates) *pending {
	forced, last := c.cursors[resource.Route].open.names, c.bound.pending
	k := pendingKey{view: c.view.state, base: base.state, clusters: clusters, forced: forced.Hash()}
	same := last != nil && last.key.view == k.view && last.key.base == k.base && last.key.clusters == k.clusters &&
		last.key.forced == k.forced
	for t := resource.Listener; t <= resource.Route; t++ {
		i, sent := pendingIndex(t), c.cursors[t].sent
		k.sent[i], k.newer[i] = sent.state, sent.seq > base.seq
		// The result stays valid when the type is sent exactly that result.
		same = same && (sent.state == last.key.sent[i] || sent.state == last.states[i])
	}
	if !same {
		c.bound.pending = c.shared.pending.Get(k, func() *pending { return newPending(k, forced) })
	}
	return c.bound.pending
}

// pendingBuilder collects the resources that are held back.
type pendingBuilder struct {
	view, base *resource.State
	// routes is the state of route configurations that the client was sent, or may be sent.
	routes *resource.State
	// unacked are the clusters that are not acknowledged.
	unacked map[string]bool
	// heldRoutes are the route configurations that are held back as a whole.
	heldRoutes map[string]bool
	// overlay has the changes to the newest state.
	overlay         [2][]omap.Change[omap.Name, *resource.Resource]
	differsFromBase [2]bool
}

// newPending computes the held-back content. forced are the names that pendingKey.forced is the hash of.
func newPending(k pendingKey, forced names) *pending {
	from := k.sent
	for i := range from {
		if from[i] == nil {
			from[i] = k.base
		}
	}
	b := &pendingBuilder{view: k.view, base: k.base, routes: from[1], unacked: map[string]bool{}, heldRoutes: map[string]bool{}}
	b.findUnacked(k.clusters)
	for ch := range resource.Diff(from[1].Types[resource.Route], k.view.Types[resource.Route]) {
		if ch.New != nil && !forced.Has(omap.Name(ch.Name)) {
			b.route(ch)
		}
	}
	for name := range forced.All() {
		if r, ok := k.view.Get(resource.Route, string(name)); ok {
			ch := resource.Change{Name: string(name), New: r}
			if old, ok := from[1].Get(resource.Route, ch.Name); ok && !hasContent(old) {
				ch.Old = old // The client had it when it reconnected. A removal would not take it away from an Envoy.
			}
			b.route(ch)
		}
	}
	for ch := range resource.Diff(from[0].Types[resource.Listener], k.view.Types[resource.Listener]) {
		if ch.New != nil {
			b.listener(ch)
		}
	}
	p := &pending{key: k, differsFromBase: b.differsFromBase}
	for t := resource.Listener; t <= resource.Route; t++ {
		i := pendingIndex(t)
		if len(b.overlay[i]) == 0 {
			continue
		}
		out := *k.view
		out.Types[t] = out.Types[t].On(omap.With(resources{}, b.overlay[i]...))
		out.Revision = k.base.Revision
		if k.sent[i] != nil && (b.differsFromBase[i] || k.newer[i]) {
			out.Revision = k.sent[i].Revision
		}
		p.states[i] = &out
	}
	return p
}

func (b *pendingBuilder) findUnacked(clusters clusterStates) {
	for _, s := range clusters {
		if s == nil {
			continue
		}
		for ch := range resource.Diff(s.Types[resource.Cluster], b.view.Types[resource.Cluster]) {
			if ch.New != nil {
				b.unacked[ch.Name] = true
			}
		}
	}
}

// anyUnacked reports whether one of the clusters is not acknowledged.
func (b *pendingBuilder) anyUnacked(clusters []string) bool {
	return len(b.unacked) > 0 && slices.ContainsFunc(clusters, func(n string) bool { return b.unacked[n] })
}

// keep holds a resource at its old content. It hides the resource if old is nil.
func (b *pendingBuilder) keep(t resource.Type, name string, old *resource.Resource) {
	if old == nil {
		old = resource.Hide(name)
	}
	b.put(t, old)
	had, ok := b.base.Get(t, name)
	if ok == old.Hidden() || ok && had.ContentHash() != old.ContentHash() {
		b.differsFromBase[pendingIndex(t)] = true
	}
}

func (b *pendingBuilder) put(t resource.Type, r *resource.Resource) {
	i := pendingIndex(t)
	b.overlay[i] = append(b.overlay[i], omap.Put(omap.Name(r.Name()), r))
}

// route holds back the virtual hosts of a route configuration that refer to an unacknowledged cluster, and the virtual
// hosts that must change together with them. It holds back the whole route configuration if the server does not know which one the client
// has, or if the client has none.
func (b *pendingBuilder) route(ch resource.Change) {
	var before omap.Map[omap.Name, *resource.Piece]
	if ch.Old != nil {
		before = ch.Old.Pieces()
	}
	diff := slices.Collect(omap.Diff(before, ch.New.Pieces()))
	waits := func(pc resource.PieceChange) bool { return pc.HasNew && b.anyUnacked(pc.New.Refs()) }
	switch {
	case !slices.ContainsFunc(diff, waits):
		return
	case ch.Old == nil || !hasContent(ch.Old):
		b.heldRoutes[ch.Name] = true
		b.keep(resource.Route, ch.Name, ch.Old)
		return
	}
	var back []resource.PieceChange
	for _, pc := range resource.Together(diff, waits) {
		if pc.Old != nil {
			back = append(back, omap.Put(pc.Key, pc.Old))
		} else {
			back = append(back, omap.Del[omap.Name, *resource.Piece](pc.Key))
		}
	}
	r := ch.New.WithPieces(omap.With(ch.New.Pieces(), back...))
	if r.ContentHash() == ch.Old.ContentHash() {
		r = ch.Old
	}
	b.put(resource.Route, r)
	base, _ := b.base.Get(resource.Route, ch.Name)
	for _, pc := range back {
		if base == nil || !samePiece(base, r, pc.Key) {
			b.differsFromBase[pendingIndex(resource.Route)] = true
		}
	}
}

// samePiece reports whether two route configurations have equal virtual hosts of a name, or both none.
func samePiece(a, b *resource.Resource, name omap.Name) bool {
	x, inA := a.Pieces().Get(name)
	y, inB := b.Pieces().Get(name)
	return inA == inB && (!inA || x.ContentHash() == y.ContentHash())
}

// listener holds back a listener that refers to an unacknowledged cluster, or to a route configuration that is held back
// as a whole.
func (b *pendingBuilder) listener(ch resource.Change) {
	routeHeld := slices.ContainsFunc(ch.New.Refs(), func(n string) bool { return b.heldRoutes[n] })
	if !routeHeld && !b.anyUnacked(ch.New.Clusters()) {
		return
	}
	b.keep(resource.Listener, ch.Name, ch.Old)
	if ch.Old == nil {
		return
	}
	for _, name := range ch.Old.Refs() { // The old listener continues to use its route configurations.
		if _, ok := b.view.Get(resource.Route, name); ok {
			continue
		}
		if r, ok := b.routes.Get(resource.Route, name); ok {
			b.keep(resource.Route, name, r)
		}
	}
}
