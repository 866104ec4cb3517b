package layer

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// Own is what looks different to some clients than to others of the same scope: because of where they run, or because
// rules select them. It holds the differences only, and only the hosts concerned are looked at.
type Own[V query.Output] struct {
	// Base is over what all see, by where the client runs; Scoped is over a set.
	Base   *query.Collection[mesh.Site, V]
	Scoped *query.Collection[scope.Personal, V]
}

type ownView struct {
	service.View
	traffic.Client
}

type ownHost struct {
	host string
	scope.Personal
}

// Differs says how something may look to a client.
type Differs[V query.Output] struct {
	// At gives the results for a host as a view and a client see it; the zero client is everybody else.
	At func(r *query.Reader, v service.View, k traffic.Client) []V
	// Matters reports whether the client can matter at all; nil: it can.
	Matters func(r *query.Reader, v service.View, k traffic.Client) bool
	Hide    func(name string) V
}

// defineOwn adds the collections.
func defineOwn[V query.Output](g *query.Graph, name string, rules *traffic.Queries, sc *scope.Queries, d Differs[V]) *Own[V] {
	own := query.Define(g, name, Equal[V], func(r *query.Reader, k ownView) ([]V, bool) {
		if d.Matters != nil && !d.Matters(r, k.View, k.Client) {
			return nil, false
		}
		list := differing(d.At(r, k.View, k.Client), d.At(r, k.View, traffic.Client{}), d.Hide)
		return list, len(list) > 0
	})
	base := query.Each(g, name+".sites", func(r *query.Reader, _ mesh.Site) scope.Hosts { return sc.Sited(r) },
		own, func(site mesh.Site, host omap.Name) ownView {
			return ownView{service.View{Host: string(host)}, traffic.Client{Site: site}}
		})
	scoped := query.Define(g, name+".scoped", Equal[V], func(r *query.Reader, k ownHost) ([]V, bool) {
		v := sc.View(r, scope.HostIn{Host: k.host, Set: k.Set})
		client := traffic.Client{Site: k.Client.Site, Rules: rules.Touching(r, k.Client.Rules, k.host)}
		if k.Set.Overlay() && v.Layer == "" && client.Rules == (traffic.Rules{}) {
			return nil, false // as over what all see
		}
		list, ok := own.Get(r, ownView{v, client})
		return list, ok
	})
	return &Own[V]{
		Base: base,
		Scoped: query.Each(g, name+".sets", func(r *query.Reader, k scope.Personal) scope.Hosts { return sc.Personal(r, k) },
			scoped, func(k scope.Personal, host omap.Name) ownHost { return ownHost{string(host), k} }),
	}
}

// differing are the results that others have not, and what hides those that only others have.
func differing[V query.Output](list, others []V, hide func(name string) V) []V {
	var out []V
	for _, v := range Cover(list, others, hide) {
		same := func(o V) bool { return o.OutputName() == v.OutputName() && o.ContentHash() == v.ContentHash() }
		if !slices.ContainsFunc(others, same) {
			out = append(out, v)
		}
	}
	return out
}
