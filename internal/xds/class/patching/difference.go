package patching

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/patch"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Difference is what the patches of one EnvoyFilter do to a resource, or to one virtual host of it.
type Difference struct {
	Type resource.Type
	Name string
	// Piece is the virtual host; empty for the resource itself.
	Piece string
	// Outcomes are what became of the patches.
	Outcomes []patch.Outcome
	// Before is the message with the patches of all other EnvoyFilters only, and After the message with all. They are nil where there is none.
	Before, After proto.Message
}

// comparison compares messages with and without the patches of one EnvoyFilter.
type comparison struct {
	filter api.Key
	typ    resource.Type
	// all are the patches, and others the patches of all other EnvoyFilters.
	all, others []*patch.Patch
	list        []Difference
}

func newComparison(t resource.Type, filter api.Key, all []*patch.Patch) *comparison {
	of := func(p *patch.Patch) bool { return p.Filter == filter }
	return &comparison{filter: filter, typ: t, all: all, others: slices.DeleteFunc(slices.Clone(all), of)}
}

// none reports whether no patch is one of the EnvoyFilter.
func (c *comparison) none() bool { return len(c.all) == len(c.others) }

// own are the outcomes of the EnvoyFilter's patches.
func (c *comparison) own(all []patch.Outcome) []patch.Outcome {
	return slices.DeleteFunc(slices.Clone(all), func(o patch.Outcome) bool { return o.Patch.Filter != c.filter })
}

// compare adds the effect on a message; apply applies patches to it.
func compare[M proto.Message](c *comparison, name, piece string, apply func([]*patch.Patch) patch.Result[M]) {
	after := apply(c.all)
	e := Difference{Type: c.typ, Name: name, Piece: piece, Outcomes: c.own(after.Outcomes)}
	if len(e.Outcomes) == 0 {
		return
	}
	if before := apply(c.others); !before.Removed {
		e.Before = before.Message
	}
	if !after.Removed {
		e.After = after.Message
	}
	c.list = append(c.list, e)
}

// Differences returns what patches of an EnvoyFilter do to the resources of the layer.
func (t *Twin) Differences(r *query.Reader, k Key, filter api.Key) []Difference {
	c := newComparison(t.Type, filter, t.patches.list(r, k.patches))
	if c.none() {
		return nil
	}
	for name, was := range t.candidates(r, k).All() {
		if was.Hidden() {
			continue
		}
		of := patchedName{k, name}
		if t.Type == resource.Route {
			t.hosts.compare(r, of, was, c)
			continue
		}
		m, err := was.Proto()
		if err != nil {
			panic(err) // the control plane has encoded it
		}
		switch m := m.(type) {
		case *clusterv3.Cluster:
			compare(c, string(name), "", func(list []*patch.Patch) patch.Result[*clusterv3.Cluster] {
				return patch.Cluster(m, t.placeOf(of), list)
			})
		case *listenerv3.Listener:
			compare(c, string(name), "", func(list []*patch.Patch) patch.Result[*listenerv3.Listener] {
				return patch.Listener(m, t.placeOf(of), list)
			})
		}
	}
	return c.list
}

// compare adds the effects on a route configuration.
func (h *patchedHosts) compare(r *query.Reader, k patchedName, was *resource.Resource, c *comparison) {
	at := h.twin.placeOf(k)
	header, err := was.Header()
	if err != nil {
		panic(err) // the control plane has encoded it
	}
	compare(c, string(k.name), "", func(list []*patch.Patch) patch.Result[*routev3.RouteConfiguration] {
		return patch.Header(header, at, list)
	})
	for name, piece := range h.candidates(r, k).All() {
		m, err := piece.Proto()
		if err != nil {
			panic(err) // the control plane has encoded it
		}
		compare(c, string(k.name), string(name), func(list []*patch.Patch) patch.Result[*routev3.VirtualHost] {
			return patch.VirtualHost(m.(*routev3.VirtualHost), string(k.name), at, list)
		})
	}
	hosts := h.merged(r, k, was.Pieces())
	added := patch.AddedHosts(string(k.name), at, c.all)
	_, outcomes := withAdded(hosts, added)
	for i, o := range outcomes {
		if o.Patch.Filter != c.filter {
			continue
		}
		e := Difference{Type: c.typ, Name: string(k.name), Piece: added[i].Host.GetName(), Outcomes: []patch.Outcome{o}}
		if o.Failure == "" {
			e.After = added[i].Host
		}
		c.list = append(c.list, e)
	}
}

// Differences returns the resources that patches of an EnvoyFilter add.
func (a *Added) Differences(r *query.Reader, c proxy.Class, filter api.Key) (list []Difference) {
	k, ok := a.key(r, c)
	if !ok {
		return nil
	}
	outcomes, _ := a.outcomes.Get(r, k)
	for _, o := range outcomes {
		if o.patches[0].Patch.Filter != filter {
			continue
		}
		e := Difference{Type: k.typ, Outcomes: slices.Clone(o.patches)}
		if o.resource != nil {
			e.Name = o.resource.Name()
			if a.taken(r, c, omap.Name(e.Name)) {
				e.Outcomes[0].Failure = nameTaken
			} else if m, err := o.resource.Proto(); err == nil {
				e.After = m
			}
		}
		list = append(list, e)
	}
	return list
}
