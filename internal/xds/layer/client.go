package layer

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// ClientLayers hold what looks different to some clients than to others of the same set. Clients differ by their locality, by the
// DestinationRules that select them, by whether they are gateways, and by the IP versions of their addresses. The layers hold
// differences only, and only the hosts concerned are translated.
type ClientLayers[V query.Output] struct {
	// Base is over the base view, for clients without rules that select them; Scoped is over a set.
	Base   query.Collection[traffic.Client, V]
	Scoped query.Collection[scope.ClientInSet, V]
}

type clientHost struct {
	host string
	scope.ClientInSet
}

// HostForClient names a host as a view and a client see it. The zero client means all clients without attributes
// that matter.
type HostForClient struct {
	service.HostView
	traffic.Client
}

// Translator makes messages M of a host, and of each message a result V.
type Translator[M any, V query.Output] struct {
	// Translate returns the messages for a host.
	Translate func(r *query.Reader, at HostForClient) []M
	// Encode turns a message into the result that is sent.
	Encode func(m M) V
	// DependsOnClient reports whether the client can matter to the host. nil means that it can.
	DependsOnClient func(r *query.Reader, at HostForClient) bool
	// Hide returns the result that hides the one of a name in the layers below.
	Hide func(name string) V
}

// at translates and encodes a host.
func (t Translator[M, V]) at(r *query.Reader, at HostForClient) []V {
	var list []V
	for _, m := range t.Translate(r, at) {
		list = append(list, t.Encode(m))
	}
	return list
}

// defineClientLayers defines the collections of ClientLayers.
func defineClientLayers[M any, V query.Output](g *query.Graph, name string, rules *traffic.Queries, sc *scope.Queries, t Translator[M, V]) *ClientLayers[V] {
	own := query.Define(g, name, Equal[V], func(r *query.Reader, k HostForClient) ([]V, bool) {
		if t.DependsOnClient != nil && !t.DependsOnClient(r, k) {
			return nil, false
		}
		list := differences(t.at(r, k), t.at(r, HostForClient{HostView: k.HostView}), t.Hide)
		return list, len(list) > 0
	})
	base := query.Each(g, name+".sites", sc.BaseClientHosts, own, func(client traffic.Client, host omap.Name) HostForClient {
		return HostForClient{service.HostView{Host: string(host)}, client}
	})
	scoped := query.Define(g, name+".scoped", Equal[V], func(r *query.Reader, k clientHost) ([]V, bool) {
		v := sc.View(r, scope.HostInSet{Host: k.host, Set: k.Set})
		client := k.Client
		client.Rules = rules.RulesForHost(r, k.Client.Rules, k.host)
		if k.Set.Overlay() && v.Viewer == "" && client.Rules == (traffic.SelectingRules{}) {
			return nil, false // the layer over the base view has the same
		}
		list, ok := own.Get(r, HostForClient{v, client})
		return list, ok
	})
	return &ClientLayers[V]{
		Base: base,
		Scoped: query.Each(g, name+".sets", func(r *query.Reader, k scope.ClientInSet) scope.Hosts { return sc.ClientHosts(r, k) },
			scoped, func(k scope.ClientInSet, host omap.Name) clientHost { return clientHost{string(host), k} }),
	}
}

// differences are the results that others do not have, and entries that hide the results that only others have.
func differences[V query.Output](list, others []V, hide func(name string) V) []V {
	var out []V
	for _, v := range HideMissing(list, others, hide) {
		same := func(o V) bool { return o.OutputName() == v.OutputName() && o.ContentHash() == v.ContentHash() }
		if !slices.ContainsFunc(others, same) {
			out = append(out, v)
		}
	}
	return out
}
