package route

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// portFor names the route configuration of a port for callers with labels.
type portFor struct {
	scope.Labelled
	port uint32
}

type hostFor struct {
	hostIn
	labels string
}

// defineLabelled adds what callers with labels see instead: hosts whose rules name a label of theirs, and the route
// configurations these are in.
func (q *Queries) defineLabelled(g *query.Graph) {
	elem := query.Define(g, "labelledVirtualHost", layer.Equal, q.virtualHostFor)
	q.labelled = query.Each(g, "labelledVirtualHosts", func(r *query.Reader, k portFor) scope.Hosts {
		return q.scope.LabelledPorts.Group(r, k.Labelled, service.Number(k.port))
	}, elem, func(k portFor, name omap.Name) hostFor {
		return hostFor{hostIn{scope.HostIn{Host: string(name), Set: k.Set}, k.port}, k.Labels}
	})
	routes := query.Define(g, "labelledRouteConfiguration", layer.Equal, q.routesFor)
	q.Labelled = query.Each(g, "labelledRouteConfigurations", func(r *query.Reader, k scope.Labelled) omap.Map[service.Number, omap.Unit] {
		return q.scope.LabelledPorts.Keys(r, k)
	}, routes, func(k scope.Labelled, port service.Number) portFor { return portFor{k, uint32(port)} })
}

// virtualHostFor is a host for callers with labels; absent if none of these matters to it.
func (q *Queries) virtualHostFor(r *query.Reader, k hostFor) ([]*resource.Piece, bool) {
	at := q.hostOf(r, k.hostIn)
	if at.Labels = q.named(r, at.View, k.labels); at.Labels == "" {
		return nil, false
	}
	return q.host.Get(r, at)
}

// named are those of the labels that the rules for a host name.
func (q *Queries) named(r *query.Reader, v service.View, labels string) string {
	names := map[string]bool{}
	objects, _ := q.traffic.Routes.Get(r, v)
	for _, vs := range objects {
		for _, rule := range vs.Spec.Http {
			for _, m := range rule.Match {
				for key, value := range m.SourceLabels {
					names[mesh.LabelPair(key, value)] = true
				}
			}
		}
	}
	pairs := slices.DeleteFunc(strings.Split(labels, ","), func(pair string) bool { return !names[pair] })
	return strings.Join(pairs, ",")
}

// has reports whether labels, as in the key of a host, have every wanted pair.
func has(labels string, want map[string]string) bool {
	if len(want) == 0 {
		return true
	}
	pairs := strings.Split(labels, ",")
	for key, value := range want {
		if !slices.Contains(pairs, mesh.LabelPair(key, value)) {
			return false
		}
	}
	return true
}

// routesFor is the route configuration of a port for callers with labels.
func (q *Queries) routesFor(r *query.Reader, k portFor) ([]*resource.Resource, bool) {
	own := q.labelled.Get(r, k)
	if own.Len() == 0 {
		return nil, false
	}
	in := portIn{k.Set, k.port}
	pieces := q.scoped.Get(r, in)
	if k.Set.Overlay() {
		pieces = q.hosts.Get(r, k.port).With(over(pieces)...)
	}
	return configuration(k.port, pieces, over(own), q.scope.Outbound(r, k.Set)), true
}
