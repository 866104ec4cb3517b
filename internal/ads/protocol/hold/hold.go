// Package hold computes what listeners and routes a client may be sent while some of its clusters are not acknowledged. It starts no goroutines.
package hold

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/ads/protocol/content"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// MaxStages bounds the memory of the unacknowledged responses of one type. If more are unacknowledged, two of them are merged.
const MaxStages = 4

// Names are a set of names, and Resources resources by name.
type (
	Names     = omap.Map[omap.Name, omap.Unit]
	resources = omap.Map[omap.Name, *resource.Resource]
)

// Pending is what listeners and routes may be sent while some clusters are not acknowledged: the newest state, except for
// resources that refer to such a cluster. Those stay as the client was sent them last until the cluster is acknowledged or
// its acknowledgement is overdue. The arrays have one element for listeners and one for routes; see Index.
type Pending struct {
	Key Key
	// States are the newest state without held-back content; nil if nothing of the type is held back.
	States [2]*resource.State
	// DiffersFromBase is set if something that is held back differs from the base state, too.
	DiffersFromBase [2]bool
}

// Key is everything that a Pending depends on. Streams of a class mostly have equal keys.
type Key struct {
	View, Base *resource.State
	Clusters   ClusterStates
	// Sent are the states that listeners and routes were sent last.
	Sent [2]*resource.State
	// Newer is set if that state is newer than base.
	Newer [2]bool
	// Forced is the hash of the route configurations that the client asks for and may not have.
	Forced omap.Hash
}

// ClusterStates are the states whose clusters the client may have: the one whose clusters listeners and routes may refer
// to, and the states sent since. A cluster counts as acknowledged only if it is the same in all of them. A cluster
// that was removed and added again is therefore usable only when the addition is acknowledged. Unused elements are nil.
type ClusterStates [MaxStages + 2]*resource.State

// Equal reports whether all clusters of a state are acknowledged.
func (k *ClusterStates) Equal(s *resource.State) bool {
	return !slices.ContainsFunc(k[:], func(o *resource.State) bool {
		return o != nil && !o.Types[resource.Cluster].Same(s.Types[resource.Cluster])
	})
}

// Index is the index of listeners and of routes in the arrays of pending.
func Index(t resource.Type) int { return int(t - resource.Listener) }

// builder collects the resources that are held back.
type builder struct {
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

// New computes the held-back content. forced are the names that Key.Forced is the hash of.
func New(k Key, forced Names) *Pending {
	from := k.Sent
	for i := range from {
		if from[i] == nil {
			from[i] = k.Base
		}
	}
	b := &builder{view: k.View, base: k.Base, routes: from[1], unacked: map[string]bool{}, heldRoutes: map[string]bool{}}
	b.findUnacked(k.Clusters)
	for ch := range resource.Diff(from[1].Types[resource.Route], k.View.Types[resource.Route]) {
		if ch.New != nil && !forced.Has(omap.Name(ch.Name)) {
			b.route(ch)
		}
	}
	for name := range forced.All() {
		if r, ok := k.View.Get(resource.Route, string(name)); ok {
			ch := resource.Change{Name: string(name), New: r}
			if old, ok := from[1].Get(resource.Route, ch.Name); ok && !content.Known(old) {
				ch.Old = old // The client had it when it reconnected. A removal would not take it away from an Envoy.
			}
			b.route(ch)
		}
	}
	for ch := range resource.Diff(from[0].Types[resource.Listener], k.View.Types[resource.Listener]) {
		if ch.New != nil {
			b.listener(ch)
		}
	}
	p := &Pending{Key: k, DiffersFromBase: b.differsFromBase}
	for t := resource.Listener; t <= resource.Route; t++ {
		i := Index(t)
		if len(b.overlay[i]) == 0 {
			continue
		}
		out := *k.View
		out.Types[t] = out.Types[t].On(omap.With(resources{}, b.overlay[i]...))
		out.Revision = k.Base.Revision
		if k.Sent[i] != nil && (b.differsFromBase[i] || k.Newer[i]) {
			out.Revision = k.Sent[i].Revision
		}
		p.States[i] = &out
	}
	return p
}

func (b *builder) findUnacked(clusters ClusterStates) {
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
func (b *builder) anyUnacked(clusters []string) bool {
	return len(b.unacked) > 0 && slices.ContainsFunc(clusters, func(n string) bool { return b.unacked[n] })
}

// keep holds a resource at its old content. It hides the resource if old is nil.
func (b *builder) keep(t resource.Type, name string, old *resource.Resource) {
	if old == nil {
		old = resource.Hide(name)
	}
	b.put(t, old)
	had, ok := b.base.Get(t, name)
	if ok == old.Hidden() || ok && had.ContentHash() != old.ContentHash() {
		b.differsFromBase[Index(t)] = true
	}
}

func (b *builder) put(t resource.Type, r *resource.Resource) {
	i := Index(t)
	b.overlay[i] = append(b.overlay[i], omap.Put(omap.Name(r.Name()), r))
}

// route holds back the virtual hosts of a route configuration that refer to an unacknowledged cluster, and the virtual
// hosts that must change together with them. It holds back the whole route configuration if the server does not know which one the client
// has, or if the client has none.
func (b *builder) route(ch resource.Change) {
	var before omap.Map[omap.Name, *resource.Piece]
	if ch.Old != nil {
		before = ch.Old.Pieces()
	}
	diff := slices.Collect(omap.Diff(before, ch.New.Pieces()))
	waits := func(pc resource.PieceChange) bool { return pc.HasNew && b.anyUnacked(pc.New.Refs()) }
	switch {
	case !slices.ContainsFunc(diff, waits):
		return
	case ch.Old == nil || !content.Known(ch.Old):
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
			b.differsFromBase[Index(resource.Route)] = true
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
func (b *builder) listener(ch resource.Change) {
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
