// Package overlay computes a state as a client that has rejected content may see it: the content that the client has replaces the rejected content, and
// everything else that this needs stays. A result depends only on the state and on the Client, so streams share it. The package starts no goroutines.
package overlay

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/ads/protocol/content"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/ads/protocol/subscribe"
	"github.com/pilotmesh/pilot/internal/ads/protocol/transition"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Client is what a client has of each type, and the content that it has rejected.
type Client struct {
	Pins *reject.Set
	// Sent and Acked are the states that the client was sent last and has acknowledged, and Removals its delayed removals.
	Sent, Acked [resource.Types]*resource.State
	Removals    [resource.Types]transition.Resources
	// Listens is set if the client asks for listeners. Routes are the route configurations that it asks for; nil if it asks for none.
	Listens bool
	Routes  *subscribe.Subscription
	// Forced are route configurations that the client asks for and may not have.
	Forced subscribe.Names
}

// Key is everything that the result of Over depends on. Streams of a class that rejected the same content mostly
// have equal keys.
type Key struct {
	state    *resource.State
	pins     omap.Hash
	sent     [resource.Types]*resource.State
	acked    [resource.Types]*resource.State
	removals [resource.Types]omap.Hash
	listens  bool
	routes   *subscribe.Subscription
	forced   omap.Hash
}

// Key identifies the result for a state.
func (c *Client) Key(s *resource.State) Key {
	k := Key{state: s, pins: c.Pins.Hash(), sent: c.Sent, acked: c.Acked, listens: c.Listens, routes: c.Routes, forced: c.Forced.Hash()}
	for t := range c.Removals {
		k.removals[t] = c.Removals[t].Hash()
	}
	return k
}

// builder collects the resources that replace pinned content in a state.
type builder struct {
	*Client
	state *resource.State
	// overlay has the changes to each type of the state.
	overlay [resource.Types][]omap.Change[omap.Name, *resource.Resource]
	// pieces are the changes of virtual hosts, by route configuration.
	pieces map[string][]omap.Change[omap.Name, *resource.Piece]
	// hiddenClusters are pinned clusters without other content at the client.
	hiddenClusters []string
}

// Over returns the state with the content that the client has in place of pinned content.
func (c *Client) Over(s *resource.State) *resource.State {
	b := &builder{Client: c, state: s, pieces: map[string][]omap.Change[omap.Name, *resource.Piece]{}}
	for _, k := range c.Pins.All() {
		published, ok := s.Get(k.Type, k.Name)
		switch {
		case !ok:
		case k.Piece != "":
			b.replacePiece(k, published)
		case k.InResource(published):
			b.replaceResource(k)
		}
	}
	b.replaceReferrers()
	for name, changes := range b.pieces {
		published, _ := s.Get(resource.Route, name)
		if b.replaced(name) {
			continue // The head is held back, and the virtual hosts with it.
		}
		r := published.WithPieces(omap.With(published.Pieces(), changes...))
		if k := (reject.Key{Type: resource.Route, Name: name, Rejected: r.ContentHash()}); b.isPinned(k) {
			b.replaceResource(k) // The client has rejected this combination of pieces, too.
			continue
		}
		b.put(resource.Route, r)
	}
	out := *s
	changed := false
	for t := range b.overlay {
		if len(b.overlay[t]) > 0 {
			changed = true
			out.Types[t] = out.Types[t].On(omap.With(transition.Resources{}, b.overlay[t]...))
		}
	}
	if !changed {
		return s
	}
	return &out
}

func (b *builder) isPinned(k reject.Key) bool { return b.Pins.Has(k) }

// replaced reports whether a route configuration as a whole is replaced.
func (b *builder) replaced(route string) bool {
	return slices.ContainsFunc(b.overlay[resource.Route], func(ch omap.Change[omap.Name, *resource.Resource]) bool { return string(ch.Key) == route })
}

func (b *builder) put(t resource.Type, r *resource.Resource) {
	b.overlay[t] = append(b.overlay[t], omap.Put(omap.Name(r.Name()), r))
}

// held is the client's content under a name: the content sent last if accept agrees, else the content acknowledged last.
func (b *builder) held(t resource.Type, name string, accept func(*resource.Resource) bool) *resource.Resource {
	if r, ok := b.Sent[t].Get(t, name); ok && accept(r) {
		return r
	}
	if r, ok := b.Removals[t].Get(omap.Name(name)); ok && accept(r) {
		return r
	}
	if r, ok := b.Acked[t].Get(t, name); ok && accept(r) {
		return r
	}
	return nil
}

// kept is what the client has under a name if the server knows the content and the client has not rejected it.
func (b *builder) kept(t resource.Type, name string) *resource.Resource {
	return b.held(t, name, func(r *resource.Resource) bool { return content.Known(r) && !b.Pins.AnyIn(t, r) })
}

// replaceResource shows what the client has instead of a pinned resource, and hides the resource if the client has
// nothing.
func (b *builder) replaceResource(k reject.Key) {
	held := b.held(k.Type, k.Name, func(r *resource.Resource) bool { return !b.Pins.AnyIn(k.Type, r) })
	if held == nil {
		b.put(k.Type, resource.Hide(k.Name))
		if k.Type == resource.Cluster {
			b.hiddenClusters = append(b.hiddenClusters, k.Name)
		}
		return
	}
	b.put(k.Type, held)
	switch k.Type {
	case resource.Listener:
		for _, route := range held.Refs() {
			b.keepRoute(route)
		}
		b.keepClusters(held.Clusters())
	case resource.Route:
		for _, p := range held.Pieces().All() {
			b.keepClusters(p.Refs())
		}
	}
}

// replacePiece shows the virtual host that the client has instead of a pinned one.
func (b *builder) replacePiece(k reject.Key, published *resource.Resource) {
	p, ok := published.Pieces().Get(omap.Name(k.Piece))
	if !ok || p.ContentHash() != k.Rejected {
		return
	}
	b.putPiece(k.Name, k.Piece, b.heldPiece(k.Name, k.Piece))
}

// heldPiece is the virtual host that the client has; nil if it has none or rejected all that the core knows of.
func (b *builder) heldPiece(route, piece string) *resource.Piece {
	var held *resource.Piece
	b.held(resource.Route, route, func(r *resource.Resource) bool {
		p, ok := r.Pieces().Get(omap.Name(piece))
		if !ok || b.isPinned(reject.Key{Type: resource.Route, Name: route, Piece: piece, Rejected: p.ContentHash()}) {
			return false
		}
		held = p
		return true
	})
	return held
}

// putPiece shows a virtual host, or none if held is nil.
func (b *builder) putPiece(route, piece string, held *resource.Piece) {
	if held == nil {
		b.pieces[route] = append(b.pieces[route], omap.Del[omap.Name, *resource.Piece](omap.Name(piece)))
		return
	}
	b.pieces[route] = append(b.pieces[route], omap.Put(omap.Name(piece), held))
	b.keepClusters(held.Refs())
}

// keepClusters keeps the clusters that a held listener or virtual host sends to. The new state may no longer have them,
// but the client still routes to them.
func (b *builder) keepClusters(names []string) {
	for _, name := range names {
		if _, ok := b.state.Get(resource.Cluster, name); ok {
			continue
		}
		cluster := b.kept(resource.Cluster, name)
		if cluster == nil {
			b.keepNamed(name)
			continue
		}
		b.put(resource.Cluster, cluster)
		if eds, ok := cluster.EDS(); ok {
			b.keepAssignment(eds)
		}
	}
}

func (b *builder) keepAssignment(name string) {
	if _, ok := b.state.Get(resource.Endpoint, name); ok {
		return
	}
	if a := b.kept(resource.Endpoint, name); a != nil {
		b.put(resource.Endpoint, a)
	}
}

// keepNamed keeps a cluster whose content is not known, because the client connected again with it. It is not sent, and not removed. Its assignment
// has the same name, as of all clusters of the control plane.
func (b *builder) keepNamed(name string) {
	if named := b.held(resource.Cluster, name, func(r *resource.Resource) bool { return !content.Known(r) }); named != nil {
		b.put(resource.Cluster, named)
		b.keepAssignment(name)
	}
}

// keepRoute keeps a route configuration that a held listener uses.
func (b *builder) keepRoute(name string) {
	if _, ok := b.state.Get(resource.Route, name); ok {
		return
	}
	r := b.kept(resource.Route, name)
	if r == nil {
		return
	}
	b.put(resource.Route, r)
	for _, p := range r.Pieces().All() {
		b.keepClusters(p.Refs())
	}
}

// replaceReferrers holds back listeners and virtual hosts that refer to a hidden cluster. The client does not have such a
// cluster, so it would reject them or send requests nowhere. Only what the client does not have yet is considered.
func (b *builder) replaceReferrers() {
	if len(b.hiddenClusters) == 0 {
		return
	}
	slices.Sort(b.hiddenClusters)
	isHidden := func(name string) bool {
		_, found := slices.BinarySearch(b.hiddenClusters, name)
		return found
	}
	b.replaceListeners(isHidden)
	b.replaceVirtualHosts(isHidden)
}

func (b *builder) replaceListeners(isHidden func(string) bool) {
	if !b.Listens {
		return
	}
	for ch := range resource.Diff(b.Sent[resource.Listener].Layers(resource.Listener), b.state.Layers(resource.Listener)) {
		if ch.New == nil || !slices.ContainsFunc(ch.New.Clusters(), isHidden) {
			continue
		}
		if ch.Old == nil || !content.Known(ch.Old) {
			b.put(resource.Listener, resource.Hide(ch.Name))
			continue
		}
		b.put(resource.Listener, ch.Old)
		b.keepClusters(ch.Old.Clusters())
	}
}

func (b *builder) replaceVirtualHosts(isHidden func(string) bool) {
	if b.Routes == nil {
		return
	}
	replaceIn := func(old, published *resource.Resource) {
		var before omap.Map[omap.Name, *resource.Piece]
		if old != nil {
			before = old.Pieces()
		}
		route := published.Name()
		for pc := range omap.Diff(before, published.Pieces()) {
			if pc.HasNew && slices.ContainsFunc(pc.New.Refs(), isHidden) {
				held := pc.Old
				if held != nil && b.isPinned(reject.Key{Type: resource.Route, Name: route, Piece: string(pc.Key), Rejected: held.ContentHash()}) {
					held = b.heldPiece(route, string(pc.Key))
				}
				b.putPiece(route, string(pc.Key), held)
			}
		}
	}
	for n := range b.Forced.All() {
		if r, ok := b.state.Get(resource.Route, string(n)); ok {
			replaceIn(nil, r)
		}
	}
	for ch := range resource.Diff(b.Sent[resource.Route].Layers(resource.Route), b.state.Layers(resource.Route)) {
		if ch.New != nil && b.Routes.Has(ch.Name) && !b.Forced.Has(omap.Name(ch.Name)) {
			replaceIn(ch.Old, ch.New)
		}
	}
}
