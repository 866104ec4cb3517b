package mcp

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// lastDay is the creation time of the entries of services of registries: where hosts compete, they yield to all objects, at the reader as here.
func lastDay() time.Time { return time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) }

// entries returns the ServiceEntries of the services that have a name. Of several hosts with one name, the host of the first registry has it.
func (q *Queries) entries(r *query.Reader, name omap.Name) ([]*resource.Resource, bool) {
	keys := q.inOrder(r, name)
	var services []*registry.Service
	for _, k := range keys {
		if s, ok := q.registered(r, k); ok && k.Name == keys[0].Name {
			services = append(services, s)
		}
	}
	if len(services) == 0 {
		return nil, false
	}
	namespace, of, _ := strings.Cut(string(name), "/")
	var list []*resource.Resource
	for _, e := range registry.Entries(of, keys[0].Name, services) {
		list = append(list, q.entry(namespace+"/"+e.Name, e.Spec))
	}
	return list, true
}

// registered returns a service of a registry.
func (q *Queries) registered(r *query.Reader, k api.Key) (*registry.Service, bool) {
	c, ok := q.tables.Claims.Get(r, k)
	s, ok2 := q.tables.Services.Get(r, k)
	e, ok3 := q.tables.Endpoints.Get(r, k)
	if !ok || !ok2 || !ok3 {
		return nil, false
	}
	return registry.FromRows(c.Created, c.Layers, s, e.Inline, e.Scale), true
}

// inOrder returns the services of an entry, the first registry's first.
func (q *Queries) inOrder(r *query.Reader, name omap.Name) (keys []api.Key) {
	order := map[api.Key]int64{}
	for k := range q.tables.Registries.ByEntry.Group(r, name).All() {
		if c, ok := q.tables.Claims.Get(r, k); ok {
			order[k] = c.Created
			keys = append(keys, k)
		}
	}
	slices.SortStableFunc(keys, func(a, b api.Key) int { return cmp.Compare(order[a], order[b]) })
	return keys
}
