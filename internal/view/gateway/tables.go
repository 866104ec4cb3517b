package gateway

import (
	"encoding/binary"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
)

// tableServers are the servers of a route configuration by their Gateways, so that another Gateway costs the VirtualServices of others nothing. The
// servers of all Ingresses are under one key.
type tableServers struct{ omap.Map[api.Key, placedList] }

// ContentHash implements omap.Value.
func (t tableServers) ContentHash() omap.Hash { return t.Hash() }

// Size implements omap.Value.
func (tableServers) Size() int { return 0 }

// placedList are servers of one object, or of all Ingresses.
type placedList []Placed

// ContentHash implements omap.Value.
func (l placedList) ContentHash() omap.Hash {
	b := make([]byte, 0, 256)
	for _, s := range l {
		for _, n := range []int64{s.Created, int64(s.Index)} {
			b = binary.AppendVarint(b, n)
		}
		k := s.Gateway
		b = s.Server.AppendTo(appendTexts(b, k.Kind, k.Namespace, k.Name, k.Cluster, s.Table))
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

// tablesOf returns the servers of listeners by their route configurations, each server once.
func tablesOf(listeners []*Listener) omap.Map[omap.Name, tableServers] {
	lists := map[string]map[api.Key]placedList{}
	for _, l := range listeners {
		for _, s := range l.Servers {
			if s.Table == "" {
				continue
			}
			of, k := lists[s.Table], owner(s.Gateway)
			if of == nil {
				of = map[api.Key]placedList{}
				lists[s.Table] = of
			}
			if !slices.ContainsFunc(of[k], func(o Placed) bool { return o.Gateway == s.Gateway && o.Index == s.Index }) {
				of[k] = append(of[k], s)
			}
		}
	}
	tables := make([]omap.Change[omap.Name, tableServers], 0, len(lists))
	for name, of := range lists {
		changes := make([]omap.Change[api.Key, placedList], 0, len(of))
		for k, list := range of {
			changes = append(changes, omap.Put(k, list))
		}
		tables = append(tables, omap.Put(omap.Name(name), tableServers{omap.With(omap.Map[api.Key, placedList]{}, changes...)}))
	}
	return omap.With(omap.Map[omap.Name, tableServers]{}, tables...)
}

func (q *Queries) defineTables(g *query.Graph) {
	tables := query.DefineLayers(g, "gatewayTables", func(r *query.Reader, k Served) []omap.Map[omap.Name, tableServers] {
		p, _ := q.plan.Get(r, k)
		return []omap.Map[omap.Name, tableServers]{p.tables}
	})
	q.servers = query.DefineLayers(g, "gatewayTable", func(r *query.Reader, k tableKey) []omap.Map[api.Key, placedList] {
		t, _ := tables.Get(r, k.Served, omap.Name(k.table))
		return []omap.Map[api.Key, placedList]{t.Map}
	})
}

// serversOfTable returns all servers of a table.
func (q *Queries) serversOfTable(r *query.Reader, t Table) (list []Placed) {
	if !t.Shared() {
		for _, servers := range q.servers.Merged(r, tableKey{t.Served, t.Name}).All() {
			list = append(list, servers...)
		}
		return list
	}
	for _, s := range q.shared.Merged(r, sharedKey{t.Served, t.Name}).All() {
		list = append(list, s.Placed)
	}
	return list
}

// serversFor returns the servers of a table that may have the routes of an object with some hosts, among the servers of some Gateways or of all
// Ingresses.
func (q *Queries) serversFor(r *query.Reader, t Table, hosts []string, gateways ...api.Key) (list []Placed) {
	if t.Shared() {
		return q.sharedBy(r, sharedKey{t.Served, t.Name}, hosts)
	}
	for _, k := range gateways {
		servers, _ := q.servers.Get(r, tableKey{t.Served, t.Name}, owner(k))
		list = append(list, servers...)
	}
	return list
}
