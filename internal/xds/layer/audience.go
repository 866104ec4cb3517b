package layer

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
)

// At names a place — a port, an address, an HTTP proxy — as an audience sees it.
type At[P comparable] struct {
	scope.Audience
	Place P
}

// elementAt names an element at a place.
type elementAt[P, E comparable] struct {
	At[P]
	element E
}

// Keyed makes results for every audience, of elements such as hosts, at places such as ports. Results have keys, and audiences share the results of a key.
type Keyed[P, K comparable, E omap.Key[E], V query.Output] struct {
	// Results are the results of a key.
	Results query.Query[K, []V]
	// Elements are the elements that an audience may see differently than the next wider one; for an audience that is over no other, all.
	Elements func(r *query.Reader, at At[P]) omap.Map[E, omap.Unit]
	// Keys returns the keys of the results that an audience has for an element.
	Keys func(r *query.Reader, at At[P], element E) []K
	// Hide returns the result that hides the one of a name in the layers below.
	Hide func(name string) V
	// Wider returns the next wider audience at a place, if it is not scope.Audience.Wider that decides. ok is false if there is none.
	Wider func(at At[P]) (wider At[P], ok bool)
}

// wider is the next wider audience at the same place.
func (t Keyed[P, K, E, V]) wider(at At[P]) (At[P], bool) {
	if t.Wider != nil {
		return t.Wider(at)
	}
	a, ok := at.Audience.Wider()
	return At[P]{a, at.Place}, ok
}

// Own defines the layers of the audiences that are narrower than all proxies: for each, the results that differ from the results of the next wider audience.
func (t Keyed[P, K, E, V]) Own(g *query.Graph, name string) query.Collection[At[P], V] {
	one := query.Define(g, name, Equal[V], func(r *query.Reader, k elementAt[P, E]) ([]V, bool) {
		own := t.Keys(r, k.At, k.element)
		wider, over := t.wider(k.At)
		if !over {
			list := t.results(r, own)
			return list, len(list) > 0
		}
		others := t.Keys(r, wider, k.element)
		if slices.Equal(own, others) {
			return nil, false
		}
		list, base := t.results(r, own), t.results(r, others)
		if Equal(list, base) {
			return nil, false
		}
		list = HideMissing(list, base, t.Hide)
		return list, len(list) > 0
	})
	return query.Each(g, name+".all", t.Elements, one, func(at At[P], e E) elementAt[P, E] { return elementAt[P, E]{at, e} })
}

// results are the results of some keys.
func (t Keyed[P, K, E, V]) results(r *query.Reader, keys []K) []V {
	if len(keys) == 1 {
		list, _ := t.Results.Get(r, keys[0])
		return list
	}
	var all []V
	for _, k := range keys {
		list, _ := t.Results.Get(r, k)
		all = append(all, list...)
	}
	return all
}
