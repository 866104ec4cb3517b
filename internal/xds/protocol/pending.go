package protocol

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// pending says how far listeners and routes may go while some clusters are not acknowledged: to the newest state, but
// for what refers to such a cluster. That stays as the client was sent it last, until the cluster is acknowledged or its
// acknowledgement is overdue.
type pending struct {
	key pendingKey
	// out is, for listeners and for routes, the newest state with what is held back; nil if nothing is.
	out [2]*resource.State
	// behind: what is held back of it is not as base has it, either.
	behind [2]bool
}

// pendingKey is all that pending depends on. Streams of a class stand at the same points most of the time.
type pendingKey struct {
	view, base *resource.State
	known      known
	at         [2]*resource.State // what listeners and routes were sent
	ahead      [2]bool            // that is newer than base
	asked      omap.Hash          // the routes that the client asks for and may not have
}

// known are the states of clusters between which the client may stand: those that listeners and routes may refer to, and
// those it was sent since. A cluster counts as acknowledged only if it is the same in all of them: one that was taken away
// and came back is there again when that is acknowledged. Unused places are nil.
type known [maxStages + 2]*resource.State

// knownClusters lists them.
func (c *Core) knownClusters(base point) (k known) {
	clusters := &c.cursors[resource.Cluster]
	k[0], k[1] = base.state, clusters.at.state
	if f := clusters.flight; f != nil {
		for i, s := range f.stages[c.overdue(f):] {
			k[2+i] = s.before.at.state
		}
	}
	return k
}

// settled reports whether all clusters of a state are acknowledged.
func (k *known) settled(s *resource.State) bool {
	return !slices.ContainsFunc(k[:], func(o *resource.State) bool {
		return o != nil && !o.Types[resource.Cluster].Same(s.Types[resource.Cluster])
	})
}

// bound is the place of listeners and of routes in the pairs of pending.
func bound(t resource.Type) int { return int(t - resource.Listener) }

// short is the newest state as listeners or routes may have it, while the clusters that are not as in base are not
// acknowledged. If something is held back, revision and place in the order are those of a state of which it has everything.
func (c *Core) short(t resource.Type, base point, k known) point {
	p := c.pendingAt(base, k)
	i, at := bound(t), c.cursors[t].at
	if p.out[i] == nil {
		return c.view
	}
	c.waits(c.cursors[resource.Cluster].flight)
	c.waits(c.cursors[resource.Endpoint].flight)
	if p.behind[i] || at.seq > base.seq {
		return point{state: p.out[i], seq: at.seq}
	}
	return point{state: p.out[i], seq: base.seq}
}

func (c *Core) pendingAt(base point, known known) *pending {
	asked := c.cursors[resource.Route].forced
	k := pendingKey{view: c.view.state, base: base.state, known: known, asked: asked.Hash()}
	same := c.pending != nil && c.pending.key.view == k.view && c.pending.key.base == k.base && c.pending.key.known == k.known &&
		c.pending.key.asked == k.asked
	for t := resource.Listener; t <= resource.Route; t++ {
		i, at := bound(t), c.cursors[t].at
		k.at[i], k.ahead[i] = at.state, at.seq > base.seq
		// That it went where it may go changes nothing.
		same = same && (at.state == c.pending.key.at[i] || at.state == c.pending.out[i])
	}
	if !same {
		c.pending = c.shared.pending.get(k, func() *pending { return newPending(k, asked) })
	}
	return c.pending
}

// shortage collects what is put over the newest state.
type shortage struct {
	view, base *resource.State
	routes     *resource.State // those the client was sent, or may be sent
	asked      names           // routes that the client may not have
	clusters   map[string]bool // not acknowledged
	unready    map[string]bool // route configurations that wait as a whole
	over       [2][]omap.Change[omap.Name, *resource.Resource]
	behind     [2]bool
}

func newPending(k pendingKey, asked names) *pending {
	from := k.at
	for i := range from {
		if from[i] == nil {
			from[i] = k.base
		}
	}
	s := &shortage{view: k.view, base: k.base, routes: from[1], asked: asked, clusters: map[string]bool{}, unready: map[string]bool{}}
	for _, known := range k.known {
		if known == nil {
			continue
		}
		for ch := range resource.Diff(known.Types[resource.Cluster], k.view.Types[resource.Cluster]) {
			if ch.New != nil {
				s.clusters[ch.Name] = true
			}
		}
	}
	for ch := range resource.Diff(from[1].Types[resource.Route], k.view.Types[resource.Route]) {
		if ch.New != nil && !asked.Has(omap.Name(ch.Name)) {
			s.route(ch)
		}
	}
	for name := range asked.All() {
		if r, ok := k.view.Get(resource.Route, string(name)); ok {
			s.route(resource.Change{Name: string(name), New: r})
		}
	}
	for ch := range resource.Diff(from[0].Types[resource.Listener], k.view.Types[resource.Listener]) {
		if ch.New != nil {
			s.listener(ch)
		}
	}
	p := &pending{key: k, behind: s.behind}
	for t := resource.Listener; t <= resource.Route; t++ {
		i := bound(t)
		if len(s.over[i]) == 0 {
			continue
		}
		out := *k.view
		out.Types[t] = out.Types[t].On(resources{}.With(s.over[i]...))
		out.Revision = k.base.Revision
		if k.at[i] != nil && (s.behind[i] || k.ahead[i]) {
			out.Revision = k.at[i].Revision
		}
		p.out[i] = &out
	}
	return p
}

func (s *shortage) waitsFor(clusters []string) bool {
	return len(s.clusters) > 0 && slices.ContainsFunc(clusters, func(n string) bool { return s.clusters[n] })
}

// keep holds a resource at what it was.
func (s *shortage) keep(t resource.Type, name string, old *resource.Resource) {
	if old == nil {
		old = resource.Hide(name)
	}
	s.put(t, old)
	had, ok := s.base.Get(t, name)
	if ok == old.Hidden() || ok && had.ContentHash() != old.ContentHash() {
		s.behind[bound(t)] = true
	}
}

func (s *shortage) put(t resource.Type, r *resource.Resource) {
	s.over[bound(t)] = append(s.over[bound(t)], omap.Put(omap.Name(r.Name()), r))
}

// route holds back the virtual hosts of a route configuration that refer to a cluster that is not acknowledged, and what
// goes together with them. One that the client does not have, or of which nobody knows what the client has, waits as a whole.
func (s *shortage) route(ch resource.Change) {
	var before omap.Map[omap.Name, *resource.Piece]
	if ch.Old != nil {
		before = ch.Old.Pieces()
	}
	diff := slices.Collect(omap.Diff(before, ch.New.Pieces()))
	waits := func(pc omap.Change[omap.Name, *resource.Piece]) bool { return pc.HasNew && s.waitsFor(pc.New.Refs()) }
	switch {
	case !slices.ContainsFunc(diff, waits):
		return
	case ch.Old == nil || !anything(ch.Old):
		s.unready[ch.Name] = true
		s.keep(resource.Route, ch.Name, ch.Old)
		return
	}
	var back []omap.Change[omap.Name, *resource.Piece]
	for _, pc := range resource.Together(diff, waits) {
		if pc.Old != nil {
			back = append(back, omap.Put(pc.Key, pc.Old))
		} else {
			back = append(back, omap.Del[omap.Name, *resource.Piece](pc.Key))
		}
	}
	r := ch.New.WithPieces(ch.New.Pieces().With(back...))
	if r.ContentHash() == ch.Old.ContentHash() {
		r = ch.Old
	}
	s.put(resource.Route, r)
	base, _ := s.base.Get(resource.Route, ch.Name)
	for _, pc := range back {
		if base == nil || !samePiece(base, r, pc.Key) {
			s.behind[bound(resource.Route)] = true
		}
	}
}

func samePiece(a, b *resource.Resource, name omap.Name) bool {
	x, inA := a.Pieces().Get(name)
	y, inB := b.Pieces().Get(name)
	return inA == inB && (!inA || x.ContentHash() == y.ContentHash())
}

// listener holds back a listener that refers to a cluster that is not acknowledged, itself or by a route configuration that
// waits as a whole.
func (s *shortage) listener(ch resource.Change) {
	unready := slices.ContainsFunc(ch.New.Refs(), func(n string) bool { return s.unready[n] })
	if !unready && !s.waitsFor(ch.New.Clusters()) {
		return
	}
	s.keep(resource.Listener, ch.Name, ch.Old)
	if ch.Old == nil {
		return
	}
	for _, name := range ch.Old.Refs() { // the routes it goes on using
		if _, ok := s.view.Get(resource.Route, name); ok {
			continue
		}
		if r, ok := s.routes.Get(resource.Route, name); ok {
			s.keep(resource.Route, name, r)
		}
	}
}
