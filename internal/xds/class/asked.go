package class

import (
	"cmp"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Asked is what a sidecar with hosts on demand has of its class state: what all such sidecars of the class have, and what its workload has asked for.
type Asked struct {
	// Names is how many authorities the workload has used, and Full the reason why it gets no more; empty if it does.
	Names int
	Full  string

	hosts    []askedHost
	clusters map[string]struct{}
	first    omap.Map[omap.Name, omap.Unit]
}

// askedHost is an authority that a workload has used.
type askedHost struct {
	table, authority string
	// piece is the virtual host of the class state that takes its requests.
	piece   string
	answer  *resource.Resource
	refused string // the error message of the proxy; empty if it has accepted the answer
}

// AskedBy returns what a sidecar with hosts on demand has; false for any other proxy.
func (q *Queries) AskedBy(r *query.Reader, connection string) (*Asked, bool) {
	c, ok := q.Class.Get(r, connection)
	if !ok || !c.HostsOnDemand {
		return nil, false
	}
	row, _ := q.tables.Full.Get(r, connection)
	a := &Asked{Full: row.Reason, clusters: map[string]struct{}{}}
	a.first, _ = q.demand.first.Get(r, c)
	for k := range q.tables.WantsOf.Group(r, connection).All() {
		table, authority, ok := resource.SplitDemand(k.Name)
		if resource.Type(k.Type) != resource.VirtualHost || !ok {
			continue
		}
		a.Names++
		piece := q.demandedPiece(r, demandKey{c, table, authority})
		if piece == nil {
			continue
		}
		want, _ := q.tables.Wants.Get(r, connected.WantKey{Connection: connection, ResourceKey: k})
		a.hosts = append(a.hosts, askedHost{table, authority, piece.Name(), piece.Demanded(table, authority), want.Refused})
		for _, name := range piece.Refs() {
			a.clusters[name] = struct{}{}
		}
	}
	slices.SortFunc(a.hosts, func(x, y askedHost) int {
		return cmp.Or(cmp.Compare(x.table, y.table), cmp.Compare(x.authority, y.authority))
	})
	return a, true
}

// HasCluster reports whether the proxy has a cluster of its class state, and the endpoints of the cluster. A nil Asked is of a proxy that has all hosts.
func (a *Asked) HasCluster(name string) bool {
	if a == nil {
		return true
	}
	_, asked := a.clusters[name]
	return asked || a.first.Has(omap.Name(name))
}

// Authorities lists the names by which the workload has asked for a virtual host of a route configuration, and the reason for which the proxy has
// rejected one of the answers; empty if it has accepted all.
func (a *Asked) Authorities(table, piece string) (list []string, refused string) {
	for _, h := range a.hosts {
		if h.table == table && h.piece == piece {
			list, refused = append(list, h.authority), cmp.Or(refused, h.refused)
		}
	}
	return list, refused
}

// Message returns a resource as the proxy has it, with its version. The route configuration of a port has, at a sidecar with hosts on demand, the virtual
// hosts that the sidecar has asked for.
func (a *Asked) Message(r *resource.Resource) (m proto.Message, version string, err error) {
	if a == nil || r.Type() != resource.Route || !resource.OnDemandRoute(r.Name()) {
		m, err = r.Proto()
		return m, r.Version(), err
	}
	head := r.DemandHead()
	if m, err = head.Proto(); err != nil {
		return nil, "", err
	}
	config, _ := m.(*routev3.RouteConfiguration)
	for _, host := range a.Hosts(r.Name()) {
		one, err := host.Proto()
		if err != nil {
			return nil, "", err
		}
		if of, ok := one.(*routev3.VirtualHost); ok && config != nil {
			config.VirtualHosts = append(config.VirtualHosts, of)
		}
	}
	return m, head.Version(), nil
}

// Hosts are the virtual hosts of a route configuration that the sidecar has.
func (a *Asked) Hosts(table string) (list []*resource.Resource) {
	for _, h := range a.hosts {
		if h.table == table {
			list = append(list, h.answer)
		}
	}
	return list
}

// Demands reports whether something that a sidecar with hosts on demand has was made with the rows, and if so, the reason for which the proxy has
// rejected it; empty if it has accepted all. s is the state of its class.
func (u *Users) Demands(connection string, c proxy.Class, s *resource.State) (has bool, refused string) {
	r, q := u.graph.Glance(), u.queries
	if own, ok := q.Class.Cell(connection); ok && u.made(own) || u.always(c, s) {
		return true, ""
	}
	for k := range q.tables.WantsOf.Group(r, connection).All() {
		table, authority, ok := resource.SplitDemand(k.Name)
		if resource.Type(k.Type) != resource.VirtualHost || !ok || !u.answer(demandKey{c, table, authority}) {
			continue
		}
		want, _ := q.tables.Wants.Get(r, connected.WantKey{Connection: connection, ResourceKey: k})
		has, refused = true, cmp.Or(refused, want.Refused)
	}
	return has, refused
}

// always reports whether something that all sidecars with hosts on demand of a class have was made with the rows.
func (u *Users) always(c proxy.Class, s *resource.State) bool {
	if made, known := u.first[c]; known {
		return made
	}
	made := false
	for l := range s.Layers(resource.Listener).All() {
		made = made || u.resource(c, resource.Listener, l.Name(), "")
	}
	for rc := range s.Layers(resource.Route).All() {
		made = made || !resource.OnDemandRoute(rc.Name()) && u.resource(c, resource.Route, rc.Name(), "")
	}
	for name := range s.First.All() {
		made = made || u.cluster(c, string(name))
	}
	u.first[c] = made
	return made
}

// answer reports whether the virtual host that answers a demand, or one of its clusters, was made with the rows.
func (u *Users) answer(k demandKey) bool {
	if made, known := u.answers[k]; known {
		return made
	}
	made := false
	if piece := u.queries.demandedPiece(u.graph.Glance(), k); piece != nil {
		made = u.resource(k.class, resource.Route, k.table, piece.Name()) ||
			slices.ContainsFunc(piece.Refs(), func(name string) bool { return u.cluster(k.class, name) })
	}
	u.answers[k] = made
	return made
}

// cluster reports whether a cluster, or its endpoints, were made with the rows.
func (u *Users) cluster(c proxy.Class, name string) bool {
	return u.resource(c, resource.Cluster, name, "") || u.resource(c, resource.Endpoint, name, "")
}

// resource reports whether a resource of a class, or a virtual host of it, was made with the rows.
func (u *Users) resource(c proxy.Class, t resource.Type, name, piece string) bool {
	cells, _ := u.queries.findCells(u.graph, c, t, name, piece)
	return slices.ContainsFunc(cells, u.made)
}
