package protocol

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// maskedView remembers what pinning made of one state, so that it is the same state as long as nothing changes.
type maskedView struct {
	in, out *resource.State
	pins    *pinSet
	routes  *subscription
}

// pinnedKey: what is held depends on what the stream stands at. Streams of a class that rejected the same stand at the same points.
type pinnedKey struct {
	state  *resource.State
	pins   omap.Hash
	at     [resource.Types]*resource.State
	acked  [resource.Types]*resource.State
	owed   [resource.Types]omap.Hash
	routes *subscription
	forced omap.Hash
}

// mask is the state as the stream may see it: where it has content that the client rejected, what the client has.
func (c *Core) mask(p point) point {
	if c.pins == nil || p.state == nil {
		return p
	}
	routes := &c.cursors[resource.Route]
	m := maskedView{in: p.state, pins: c.pins, routes: routes.sub}
	if have := c.masked; have.in == m.in && have.pins == m.pins && have.routes == m.routes {
		return point{state: have.out, seq: p.seq}
	}
	k := pinnedKey{state: p.state, pins: c.pins.hash, routes: routes.sub, forced: routes.forced.Hash()}
	for t := range c.cursors {
		cur := &c.cursors[t]
		k.at[t], k.acked[t], k.owed[t] = cur.at.state, cur.acked().state, cur.owed.Hash()
	}
	m.out = c.shared.pinned.get(k, func() *resource.State { return c.hold(p.state) })
	c.masked = m
	return point{state: m.out, seq: p.seq}
}

// holder collects what is put over a state.
type holder struct {
	core   *Core
	state  *resource.State
	over   [resource.Types][]omap.Change[omap.Name, *resource.Resource]
	pieces map[string][]omap.Change[omap.Name, *resource.Piece] // by route configuration
	hidden []string                                             // clusters
}

// hold makes the state that shows held content for rejected content.
func (c *Core) hold(s *resource.State) *resource.State {
	h := &holder{core: c, state: s, pieces: map[string][]omap.Change[omap.Name, *resource.Piece]{}}
	for _, k := range c.pins.keys {
		fresh, ok := s.Get(k.typ, k.name)
		switch {
		case !ok:
		case k.piece != "":
			h.piece(k, fresh)
		case fresh.ContentHash() == k.rejected:
			h.whole(k)
		}
	}
	h.dependent()
	for name, changes := range h.pieces {
		fresh, _ := s.Get(resource.Route, name)
		r := fresh.WithPieces(fresh.Pieces().With(changes...))
		if k := (pinKey{resource.Route, name, "", r.ContentHash()}); c.pins.has(k) {
			h.whole(k) // what is left was rejected, too
			continue
		}
		h.put(resource.Route, r)
	}
	out := *s
	changed := false
	for t := range h.over {
		if len(h.over[t]) > 0 {
			changed = true
			out.Types[t] = out.Types[t].On(resources{}.With(h.over[t]...))
		}
	}
	if !changed {
		return s
	}
	return &out
}

func (h *holder) put(t resource.Type, r *resource.Resource) {
	h.over[t] = append(h.over[t], omap.Put(omap.Name(r.Name()), r))
}

// had is what the client has under a name: what it was sent, if that is not what it rejected, else what it acknowledged.
func (h *holder) had(t resource.Type, name string, accept func(*resource.Resource) bool) *resource.Resource {
	cur := &h.core.cursors[t]
	if r, ok := cur.at.state.Get(t, name); ok && accept(r) {
		return r
	}
	if r, ok := cur.owed.Get(omap.Name(name)); ok && accept(r) {
		return r
	}
	if r, ok := cur.acked().state.Get(t, name); ok && accept(r) {
		return r
	}
	return nil
}

func anything(r *resource.Resource) bool { return r.Size() > 0 }

func (h *holder) whole(k pinKey) {
	held := h.had(k.typ, k.name, func(r *resource.Resource) bool {
		return !h.core.pins.has(pinKey{k.typ, k.name, "", r.ContentHash()})
	})
	if held == nil {
		h.put(k.typ, resource.Hide(k.name))
		if k.typ == resource.Cluster {
			h.hidden = append(h.hidden, k.name)
		}
		return
	}
	h.put(k.typ, held)
	switch k.typ {
	case resource.Listener:
		for _, route := range held.Refs() {
			h.keepRoute(route)
		}
		h.keepClusters(held.Clusters())
	case resource.Route:
		for _, p := range held.Pieces().All() {
			h.keepClusters(p.Refs())
		}
	}
}

func (h *holder) piece(k pinKey, fresh *resource.Resource) {
	p, ok := fresh.Pieces().Get(omap.Name(k.piece))
	if !ok || p.ContentHash() != k.rejected {
		return
	}
	h.holdPiece(k.name, k.piece, h.hadPiece(k.name, k.piece))
}

func (h *holder) hadPiece(route, piece string) *resource.Piece {
	var held *resource.Piece
	h.had(resource.Route, route, func(r *resource.Resource) bool {
		p, ok := r.Pieces().Get(omap.Name(piece))
		if !ok || h.core.pins.has(pinKey{resource.Route, route, piece, p.ContentHash()}) {
			return false
		}
		held = p
		return true
	})
	return held
}

func (h *holder) holdPiece(route, piece string, held *resource.Piece) {
	if held == nil {
		h.pieces[route] = append(h.pieces[route], omap.Del[omap.Name, *resource.Piece](omap.Name(piece)))
		return
	}
	h.pieces[route] = append(h.pieces[route], omap.Put(omap.Name(piece), held))
	h.keepClusters(held.Refs())
}

// keepClusters keeps what a held piece or listener sends to: it may be gone from the state together with the reason to route
// there, but the client goes on routing.
func (h *holder) keepClusters(names []string) {
	for _, name := range names {
		if _, ok := h.state.Get(resource.Cluster, name); ok {
			continue
		}
		cluster := h.had(resource.Cluster, name, anything)
		if cluster == nil {
			continue
		}
		h.put(resource.Cluster, cluster)
		if eds, ok := cluster.EDS(); ok {
			if _, ok := h.state.Get(resource.Endpoint, eds); ok {
				continue
			}
			if a := h.had(resource.Endpoint, eds, anything); a != nil {
				h.put(resource.Endpoint, a)
			}
		}
	}
}

func (h *holder) keepRoute(name string) {
	if _, ok := h.state.Get(resource.Route, name); ok {
		return
	}
	r := h.had(resource.Route, name, anything)
	if r == nil {
		return
	}
	h.put(resource.Route, r)
	for _, p := range r.Pieces().All() {
		h.keepClusters(p.Refs())
	}
}

// dependent pins what sends to a cluster that is held away: a listener or virtual host that names a cluster the client does not
// have would be rejected, or send traffic nowhere. Only what the client does not have yet is looked at.
func (h *holder) dependent() {
	if len(h.hidden) == 0 {
		return
	}
	slices.Sort(h.hidden)
	isHidden := func(name string) bool {
		_, found := slices.BinarySearch(h.hidden, name)
		return found
	}
	h.dependentListeners(isHidden)
	h.dependentRoutes(isHidden)
}

func (h *holder) dependentListeners(isHidden func(string) bool) {
	listeners := &h.core.cursors[resource.Listener]
	if listeners.sub == nil {
		return
	}
	for ch := range resource.Diff(listeners.at.state.Layers(resource.Listener), h.state.Layers(resource.Listener)) {
		if ch.New == nil || !slices.ContainsFunc(ch.New.Clusters(), isHidden) {
			continue
		}
		if ch.Old == nil || !anything(ch.Old) {
			h.put(resource.Listener, resource.Hide(ch.Name))
			continue
		}
		h.put(resource.Listener, ch.Old)
		h.keepClusters(ch.Old.Clusters())
	}
}

func (h *holder) dependentRoutes(isHidden func(string) bool) {
	routes := &h.core.cursors[resource.Route]
	if routes.sub == nil {
		return
	}
	look := func(old, fresh *resource.Resource) {
		var before omap.Map[omap.Name, *resource.Piece]
		if old != nil {
			before = old.Pieces()
		}
		for pc := range omap.Diff(before, fresh.Pieces()) {
			if pc.HasNew && slices.ContainsFunc(pc.New.Refs(), isHidden) {
				held := pc.Old
				if held != nil && h.core.pins.has(pinKey{resource.Route, fresh.Name(), string(pc.Key), held.ContentHash()}) {
					held = h.hadPiece(fresh.Name(), string(pc.Key))
				}
				h.holdPiece(fresh.Name(), string(pc.Key), held)
			}
		}
	}
	for n := range routes.forced.All() {
		if r, ok := h.state.Get(resource.Route, string(n)); ok {
			look(nil, r)
		}
	}
	for ch := range resource.Diff(routes.at.state.Layers(resource.Route), h.state.Layers(resource.Route)) {
		if ch.New != nil && routes.sub.has(ch.Name) && !routes.forced.Has(omap.Name(ch.Name)) {
			look(ch.Old, ch.New)
		}
	}
}
