package patching

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/patch"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/route"
)

// pieces are virtual hosts by name.
type pieces = omap.Map[omap.Name, *resource.Piece]

// patchedHost names a virtual host of a route configuration in a patched layer.
type patchedHost struct {
	patchedName
	piece omap.Name
}

// sourceName names a route configuration of a layer.
type sourceName struct {
	layer any
	name  omap.Name
}

// patchedHosts are the queries for the patched virtual hosts of the route configurations of one layer. There is a cell for each virtual host
// that patches may be about, so that a change of one is patched alone.
type patchedHosts struct {
	twin *Twin
	one  query.Layers[sourceName, omap.Name, *resource.Piece]
	// outcome is a virtual host after the patches, with what became of each.
	outcome query.Query[patchedHost, []*hostOutcome]
	patched query.Collection[patchedName, *resource.Piece]
	effects query.Groups[patchedName, Effect, omap.Name]
}

func definePatchedHosts(g *query.Graph, t *Twin, name string) patchedHosts {
	h := patchedHosts{twin: t}
	h.one = query.DefineLayers(g, name+".hostSource", func(r *query.Reader, k sourceName) []pieces {
		of, _ := t.one.Get(r, k.layer, k.name)
		if of == nil {
			return nil
		}
		return []pieces{of.Pieces()}
	})
	h.outcome = query.Define(g, name+".hostOutcome", layer.Equal[*hostOutcome], h.applyTo)
	key := func(k patchedName, piece omap.Name) patchedHost { return patchedHost{k, piece} }
	outcomes := query.Each(g, name+".hostOutcomes", h.candidates, h.outcome, key)
	h.effects = query.GroupBy(g, name+".hostEffects", outcomes, func(o *hostOutcome, add func(Effect, omap.Name)) { o.each(add) })
	h.patched = query.Each(g, name+".hosts", h.candidates, query.Define(g, name+".host", layer.Equal[*resource.Piece],
		func(r *query.Reader, k patchedHost) ([]*resource.Piece, bool) {
			if list, ok := h.outcome.Get(r, k); ok {
				if _, all := h.named(r, k.patchedName); all && list[0].piece.Hidden() {
					return nil, false
				}
				return []*resource.Piece{list[0].piece}, true
			}
			was, ok := h.one.Get(r, sourceName{k.layer, k.name}, k.piece)
			if !ok {
				return nil, false
			}
			return []*resource.Piece{was}, true
		}), key)
	return h
}

// hostOutcome is a virtual host after patches that are about it. A removed one is hidden.
type hostOutcome struct {
	outcome
	piece *resource.Piece
}

// ContentHash implements omap.Value.
func (o *hostOutcome) ContentHash() omap.Hash {
	own, piece := o.outcome.ContentHash(), o.piece.ContentHash()
	return omap.Sum(own[:], piece[:])
}

// candidates are the virtual hosts that patches may be about.
func (h *patchedHosts) candidates(r *query.Reader, k patchedName) pieces {
	of, _ := h.twin.one.Get(r, k.layer, k.name)
	if of == nil {
		return pieces{}
	}
	names, all := h.named(r, k)
	if all {
		return of.Pieces()
	}
	var changes []omap.Change[omap.Name, *resource.Piece]
	for n := range names {
		if v, ok := of.Pieces().Get(n); ok {
			changes = append(changes, omap.Put(n, v))
		}
	}
	return omap.With(pieces{}, changes...)
}

// named are the names of the virtual hosts that patches name; all is true if some patch may be about any.
func (h *patchedHosts) named(r *query.Reader, k patchedName) (names map[omap.Name]bool, all bool) {
	names = map[omap.Name]bool{}
	for _, p := range h.twin.patches.list(r, k.patches) {
		if !p.AboutHosts(h.twin.placeOf(k), string(k.name)) {
			continue
		}
		host := p.VirtualHost()
		if host == "" {
			return nil, true
		}
		for _, n := range route.PieceNames(host) {
			names[omap.Name(n)] = true
		}
	}
	return names, false
}

// applyTo applies patches to a virtual host.
func (h *patchedHosts) applyTo(r *query.Reader, k patchedHost) ([]*hostOutcome, bool) {
	was, ok := h.one.Get(r, sourceName{k.layer, k.name}, k.piece)
	if !ok {
		return nil, false
	}
	m, err := was.Proto()
	if err != nil {
		panic(err) // the control plane has encoded it
	}
	result := patch.VirtualHost(m.(*routev3.VirtualHost), string(k.name), h.twin.placeOf(k.patchedName), h.twin.patches.list(r, k.patches))
	if len(result.Outcomes) == 0 {
		return nil, false
	}
	o := &hostOutcome{outcome{name: string(k.piece), patches: result.Outcomes}, was}
	switch {
	case result.Removed:
		o.piece = resource.HidePiece(string(k.piece))
	case result.Changed:
		o.piece = resource.PieceOf(string(k.piece), result.Message)
	}
	return []*hostOutcome{o}, true
}

// apply puts a patched route configuration together.
func (h *patchedHosts) apply(r *query.Reader, k patchedName, was *resource.Resource, o *outcome) {
	at, list := h.twin.placeOf(k), h.twin.patches.list(r, k.patches)
	before, err := was.Header()
	if err != nil {
		panic(err) // the control plane has encoded it
	}
	header := patch.Header(before, at, list)
	o.patches = header.Outcomes
	for e := range h.effects.Keys(r, k).All() {
		o.patches = append(o.patches, patch.Outcome{Patch: e.patch, Matched: 1, Failure: e.failure, Denied: e.denied})
	}
	hosts := h.merged(r, k, was.Pieces())
	hosts, outcomes := withAdded(hosts, patch.AddedHosts(string(k.name), at, list))
	o.patches = append(o.patches, outcomes...)
	if header.Changed || !hosts.Equal(was.Pieces()) {
		o.resource = resource.NewRoute(string(k.name), header.Message, hosts)
	}
}

// merged are the virtual hosts after patches. The cost grows with the virtual hosts that patches may be about.
func (h *patchedHosts) merged(r *query.Reader, k patchedName, was pieces) pieces {
	patched := h.patched.Get(r, k)
	if _, all := h.named(r, k); all {
		return patched
	}
	var changes []omap.Change[omap.Name, *resource.Piece]
	for name, p := range patched.All() {
		if p.Hidden() {
			changes = append(changes, omap.Del[omap.Name, *resource.Piece](name))
		} else {
			changes = append(changes, omap.Put(name, p))
		}
	}
	return omap.With(was, changes...)
}

// withAdded adds virtual hosts. One whose name is taken is left out: Envoy would refuse the whole route configuration.
func withAdded(hosts pieces, added []patch.AddedHost) (with pieces, outcomes []patch.Outcome) {
	for _, a := range added {
		switch name := a.Host.GetName(); {
		case a.Failure != "":
		case slices.ContainsFunc(route.PieceNames(name), func(n string) bool { return hosts.Has(omap.Name(n)) }):
			a.Failure = "the route configuration has a virtual host of that name: merge into it instead"
		default:
			hosts = omap.With(hosts, omap.Put(omap.Name(name), resource.PieceOf(name, a.Host)))
		}
		outcomes = append(outcomes, a.Outcome)
	}
	return hosts, outcomes
}
