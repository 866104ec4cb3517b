package gateway

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/gatewayrows"
)

// tableServers are the servers of a route configuration by their Gateways, so that another Gateway costs the VirtualServices of others nothing. The
// servers of all Ingresses are under one key.
type tableServers struct{ omap.Map[api.Key, placedList] }

// ContentHash implements omap.Value.
func (t tableServers) ContentHash() omap.Hash { return t.Hash() }

// Size implements omap.Value.
func (tableServers) Size() int { return 0 }

// placedList are servers of one object, or of all Ingresses.
type placedList []*Placed

// ContentHash implements omap.Value.
func (l placedList) ContentHash() omap.Hash {
	b := make([]byte, 0, 256)
	for _, s := range l {
		for _, n := range []int64{s.Created, int64(s.Index)} {
			b = binary.AppendVarint(b, n)
		}
		k := s.Gateway
		b = s.Server.AppendTo(gateway.AppendTexts(b, k.Kind, k.Namespace, k.Name, k.Cluster, s.Table))
	}
	return omap.Sum(b)
}

// Size implements omap.Value.
func (placedList) Size() int { return 0 }

// owner is the key under which the servers of an object are.
func owner(k api.Key) api.Key {
	if k.Kind == ingress.Kind {
		return api.Key{Kind: ingress.Kind}
	}
	return k
}

// declared is a server of a Gateway.
type declared struct{ *Placed }

// OutputName implements query.Output. The servers of a Gateway follow each other, in their order.
func (d declared) OutputName() string { return fmt.Sprintf("%s#%08d", d.Gateway, d.Index) }

// ContentHash implements omap.Value.
func (d declared) ContentHash() omap.Hash { return d.hash }

// Size implements omap.Value.
func (declared) Size() int { return 0 }

// tables collects the servers of route configurations.
type tables map[string]map[api.Key]placedList

// add adds a server to its route configuration under a key.
func (t tables) add(k api.Key, s *Placed) {
	of := t[s.Table]
	if of == nil {
		of = map[api.Key]placedList{}
		t[s.Table] = of
	}
	of[k] = append(of[k], s)
}

// has reports whether a server is in its route configuration already, because it has several sockets.
func (t tables) has(k api.Key, s *Placed) bool {
	return slices.ContainsFunc(t[s.Table][k], func(o *Placed) bool { return o.Gateway == s.Gateway && o.Index == s.Index })
}

func (t tables) equal(o tables) bool {
	return maps.EqualFunc(t, o, func(a, b map[api.Key]placedList) bool {
		return maps.EqualFunc(a, b, func(a, b placedList) bool { return slices.EqualFunc(a, b, (*Placed).equal) })
	})
}

// byName returns the route configurations by name.
func (t tables) byName() omap.Map[omap.Name, tableServers] {
	all := make([]omap.Change[omap.Name, tableServers], 0, len(t))
	for name, of := range t {
		changes := make([]omap.Change[api.Key, placedList], 0, len(of))
		for k, list := range of {
			changes = append(changes, omap.Put(k, list))
		}
		all = append(all, omap.Put(omap.Name(name), tableServers{omap.With(omap.Map[api.Key, placedList]{}, changes...)}))
	}
	return omap.With(omap.Map[omap.Name, tableServers]{}, all...)
}

func (q *Queries) defineTables(g *query.Graph) {
	tables := query.DefineLayers(g, "gatewayTables", func(r *query.Reader, k Served) []omap.Map[omap.Name, tableServers] {
		p, _ := q.plan.Get(r, k)
		return []omap.Map[omap.Name, tableServers]{p.tables.byName()}
	})
	q.servers = query.DefineLayers(g, "gatewayTable", func(r *query.Reader, k tableKey) []omap.Map[api.Key, placedList] {
		t, _ := tables.Get(r, k.Served, omap.Name(k.table))
		return []omap.Map[api.Key, placedList]{t.Map}
	})
}

// defineDeclared defines the servers of Gateways. There is one cell per server, which hashes what the servers are compared by: a plan is made of
// thousands, all of them the same as before except one.
func (q *Queries) defineDeclared(g *query.Graph) {
	one := query.Define(g, "declaredServer", func(a, b []declared) bool {
		return slices.EqualFunc(a, b, func(a, b declared) bool { return a.equal(b.Placed) })
	}, func(r *query.Reader, k gatewayrows.ServerKey) ([]declared, bool) {
		row, ok := q.tables.Gateways.Declared.Servers.Get(r, k)
		if !ok {
			return nil, false
		}
		s := &Placed{Server: row.Server, Gateway: k.Gateway, Created: row.Created, Index: k.Index}
		s.hash = placedList{s}.ContentHash()
		if s.Ordinary() {
			for _, h := range s.Hosts {
				s.hostHashes = append(s.hostHashes, s.hashOf(h))
			}
		}
		return []declared{{s}}, true
	})
	servers := func(r *query.Reader, selectors intern.List[proxy.GatewaySelector]) (all omap.Map[gatewayrows.ServerKey, omap.Unit]) {
		for s := range selectors.All() {
			all = union(all, q.tables.Gateways.Declared.Selected.Group(r, s))
		}
		return all
	}
	q.declaredBy = query.Each(g, "declaredServers", servers, one, func(_ intern.List[proxy.GatewaySelector], k gatewayrows.ServerKey) gatewayrows.ServerKey {
		return k
	})
}

// selected returns the Gateways with some selectors.
func (q *Queries) selected(r *query.Reader, selectors intern.List[proxy.GatewaySelector]) (all omap.Map[gatewayrows.Selected, omap.Unit]) {
	for s := range selectors.All() {
		all = union(all, q.tables.Gateways.Selected.Group(r, s))
	}
	return all
}

// union returns the keys of two maps.
func union[K omap.Key[K]](a, b omap.Map[K, omap.Unit]) omap.Map[K, omap.Unit] {
	if a.Len() < b.Len() {
		a, b = b, a
	}
	if b.Len() == 0 {
		return a
	}
	changes := make([]omap.Change[K, omap.Unit], 0, b.Len())
	for k := range b.All() {
		changes = append(changes, omap.Put(k, omap.Unit{}))
	}
	return omap.With(a, changes...)
}

// serversOfTable returns all servers of a table.
func (q *Queries) serversOfTable(r *query.Reader, t Table) (list []*Placed) {
	for _, servers := range q.servers.Merged(r, tableKey{t.Served, t.Name}).All() {
		list = append(list, servers...)
	}
	return list
}

// serversFor returns the servers of a table that may have the routes of an object with some hosts: of one of its Gateways, or of Ingresses.
func (q *Queries) serversFor(r *query.Reader, t Table, hosts []string, gateways ...api.Key) (list []*Placed) {
	if t.Shared() {
		return q.sharedBy(r, sharedKey{t.Served, t.Name}, hosts)
	}
	for _, k := range gateways {
		servers, _ := q.servers.Get(r, tableKey{t.Served, t.Name}, owner(k))
		list = append(list, servers...)
	}
	return list
}
