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

type ownHost struct {
	host string
	scope.Personal
}

// Seen is a host as a view and a client see it; the zero client is everybody else.
type Seen struct {
	service.View
	traffic.Client
}

// Translator makes something of hosts: messages M, and of each an output V.
type Translator[M any, V query.Output] struct {
	// Translate gives the messages for a host.
	Translate func(r *query.Reader, at Seen) []M
	// Encode makes a message what is sent.
	Encode func(m M) V
	// Matters reports whether the client can matter at all; nil: it can.
	Matters func(r *query.Reader, at Seen) bool
	Hide    func(name string) V
}

// at translates and encodes.
func (t Translator[M, V]) at(r *query.Reader, at Seen) []V {
	var list []V
	for _, m := range t.Translate(r, at) {
		list = append(list, t.Encode(m))
	}
	return list
}

// defineOwn adds the collections.
func defineOwn[M any, V query.Output](g *query.Graph, name string, rules *traffic.Queries, sc *scope.Queries, t Translator[M, V]) *Own[V] {
	own := query.Define(g, name, Equal[V], func(r *query.Reader, k Seen) ([]V, bool) {
		if t.Matters != nil && !t.Matters(r, k) {
			return nil, false
		}
		list := differing(t.at(r, k), t.at(r, Seen{View: k.View}), t.Hide)
		return list, len(list) > 0
	})
	base := query.Each(g, name+".sites", func(r *query.Reader, _ mesh.Site) scope.Hosts { return sc.Sited(r) },
		own, func(site mesh.Site, host omap.Name) Seen {
			return Seen{service.View{Host: string(host)}, traffic.Client{Site: site}}
		})
	scoped := query.Define(g, name+".scoped", Equal[V], func(r *query.Reader, k ownHost) ([]V, bool) {
		v := sc.View(r, scope.HostIn{Host: k.host, Set: k.Set})
		client := traffic.Client{Site: k.Client.Site, Rules: rules.Touching(r, k.Client.Rules, k.host)}
		if k.Set.Overlay() && v.Layer == "" && client.Rules == (traffic.Rules{}) {
			return nil, false // as over what all see
		}
		list, ok := own.Get(r, Seen{v, client})
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
