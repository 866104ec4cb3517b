package server

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
}

// mask is the state as the stream may see it: where it has content that the client rejected, what the client has.
func (c *Core) mask(p point, slot int) point {
	if c.pins == nil || p.state == nil || p.partial {
		return p
	}
	m := &c.masked[slot]
	routes := c.cursors[resource.Route].sub
	if m.in != p.state || m.pins != c.pins || m.routes != routes {
		k := pinnedKey{state: p.state, pins: c.pins.hash, routes: routes}
		for t := range c.cursors {
			cur := &c.cursors[t]
			k.at[t], k.acked[t], k.owed[t] = cur.at.state, cur.acked().state, cur.owed.Hash()
		}
		out := c.shared.pinned.get(k, func() *resource.State { return c.hold(p.state) })
		*m = maskedView{p.state, out, c.pins, routes}
	}
	return point{state: m.out, seq: p.seq, partial: p.partial}
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
		h.put(resource.Route, fresh.WithPieces(fresh.Pieces().With(changes...)))
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
	if r, ok := cur.owed.Get(omap.Name(name)); ok && r.Size() > 0 && accept(r) {
		return r
	}
	if r, ok := cur.acked().state.Get(t, name); ok && accept(r) {
		return r
	}
	return nil
}

func anything(r *resource.Resource) bool { return r.Size() > 0 }

func (h *holder) whole(k pinKey) {
	held := h.had(k.typ, k.name, func(r *resource.Resource) bool { return r.Size() > 0 && r.ContentHash() != k.rejected })
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
	case resource.Route:
		for _, p := range held.Pieces().All() {
			h.keepClusters(p)
		}
	}
}

func (h *holder) piece(k pinKey, fresh *resource.Resource) {
	p, ok := fresh.Pieces().Get(omap.Name(k.piece))
	if !ok || p.ContentHash() != k.rejected {
		return
	}
	h.holdPiece(k.name, k.piece, h.hadPiece(k.name, k.piece, k.rejected))
}

func (h *holder) hadPiece(route, piece string, not omap.Hash) *resource.Piece {
	var held *resource.Piece
	h.had(resource.Route, route, func(r *resource.Resource) bool {
		p, ok := r.Pieces().Get(omap.Name(piece))
		if !ok || p.ContentHash() == not {
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
	h.keepClusters(held)
}

// keepClusters keeps what a held piece routes to: it may be gone from the state together with the reason to route
// there, but the client goes on routing.
func (h *holder) keepClusters(p *resource.Piece) {
	for _, name := range p.Refs() {
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
		h.keepClusters(p)
	}
}

// dependent pins what routes to a cluster that is held away: a virtual host that names a cluster the client does not
// have would be rejected, or send traffic nowhere. Only what the client does not have yet is looked at.
func (h *holder) dependent() {
	routes := &h.core.cursors[resource.Route]
	if len(h.hidden) == 0 || routes.sub == nil {
		return
	}
	slices.Sort(h.hidden)
	isHidden := func(name string) bool {
		_, found := slices.BinarySearch(h.hidden, name)
		return found
	}
	for ch := range resource.Diff(routes.at.state.Layers(resource.Route), h.state.Layers(resource.Route)) {
		if ch.New == nil || ch.New.Pieces().Len() == 0 || !routes.sub.has(ch.Name) {
			continue
		}
		var before omap.Map[omap.Name, *resource.Piece]
		if ch.Old != nil {
			before = ch.Old.Pieces()
		}
		for pc := range omap.Diff(before, ch.New.Pieces()) {
			if pc.HasNew && slices.ContainsFunc(pc.New.Refs(), isHidden) {
				h.holdPiece(ch.Name, string(pc.Key), pc.Old)
			}
		}
	}
}
