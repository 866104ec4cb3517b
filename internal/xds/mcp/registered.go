package mcp

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// lastDay is the creation time of the entries of services of registries: where hosts compete, they yield to all objects, at the reader as here.
func lastDay() time.Time { return time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) }

// entries returns the ServiceEntries of the services that have a name. The first registry defines the service, and those that have the same host add
// their endpoints. There is one entry for each set of ports that endpoints serve, because all endpoints of a ServiceEntry serve all of its ports.
func (q *Queries) entries(r *query.Reader, name omap.Name) ([]*resource.Resource, bool) {
	keys := q.inOrder(r, name)
	if len(keys) == 0 {
		return nil, false
	}
	first := keys[0]
	s, ok := q.tables.Services.Get(r, first)
	if !ok {
		return nil, false
	}
	var rows []*state.Endpoints
	for _, k := range keys {
		if row, ok := q.tables.Endpoints.Get(r, k); ok && k.Name == first.Name {
			rows = append(rows, row)
		}
	}
	endpoints := serving(rows)
	groups := byPorts(s, endpoints)
	spec := q.specOf(r, first, s)
	if len(groups) == 0 {
		return []*resource.Resource{q.entry(string(name), spec(s.Ports, nil))}, true
	}
	var list []*resource.Resource
	for i, g := range groups {
		of := string(name)
		if i > 0 {
			for _, p := range g.ports {
				of += fmt.Sprintf(".%d", p.Number) // no name of a service has a dot
			}
		}
		list = append(list, q.entry(of, spec(g.ports, g.endpoints)))
	}
	return list, true
}

// inOrder returns the services of an entry, that of the first registry first.
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

// serving returns the endpoints that take requests, with weights in one unit.
func serving(rows []*state.Endpoints) (list []mesh.Endpoint) {
	unit := uint64(1)
	for _, row := range rows {
		unit = max(unit, uint64(row.Scale))
	}
	for _, row := range rows {
		for _, e := range row.Inline {
			if e.Health == mesh.Healthy {
				e.Weight = uint32(min(uint64(max(e.Weight, 1))*unit/uint64(max(row.Scale, 1)), math.MaxUint32/4))
				list = append(list, e)
			}
		}
	}
	return list
}

// group is the endpoints that serve the same ports of a service.
type group struct {
	ports     []mesh.Port
	endpoints []mesh.Endpoint
}

// byPorts groups endpoints by the ports that they serve, the group with most ports first.
func byPorts(s *mesh.Service, endpoints []mesh.Endpoint) (groups []group) {
	at := map[string]int{}
	for _, e := range endpoints {
		var ports []mesh.Port
		key := ""
		for _, p := range s.Ports {
			if _, named := e.Ports[p.Name]; named || !e.OnlyPorts {
				ports = append(ports, p)
				key += fmt.Sprintf(".%d", p.Number)
			}
		}
		if len(ports) == 0 {
			continue
		}
		i, ok := at[key]
		if !ok {
			i = len(groups)
			at[key] = i
			groups = append(groups, group{ports: ports})
		}
		groups[i].endpoints = append(groups[i].endpoints, e)
	}
	slices.SortFunc(groups, func(a, b group) int {
		return cmp.Or(len(b.ports)-len(a.ports), slices.CompareFunc(a.ports, b.ports, func(x, y mesh.Port) int { return cmp.Compare(x.Number, y.Number) }))
	})
	return groups
}

// specOf returns a function that makes the specs of the entries of a service.
func (q *Queries) specOf(r *query.Reader, k api.Key, s *mesh.Service) func([]mesh.Port, []mesh.Endpoint) *networking.ServiceEntry {
	exportTo := []string{"~"}
	if c, ok := q.tables.Claims.Get(r, k); ok && len(c.Layers) > 0 {
		exportTo = slices.Clone(c.Layers)
		if slices.Contains(exportTo, "") {
			exportTo = []string{"*"}
		}
	}
	location := networking.ServiceEntry_MESH_INTERNAL
	if s.External {
		location = networking.ServiceEntry_MESH_EXTERNAL
	}
	resolution := networking.ServiceEntry_STATIC
	if s.Resolution == mesh.DNS {
		resolution = networking.ServiceEntry_DNS
	}
	return func(ports []mesh.Port, endpoints []mesh.Endpoint) *networking.ServiceEntry {
		e := &networking.ServiceEntry{Hosts: []string{k.Name}, Location: location, Resolution: resolution, ExportTo: exportTo}
		for _, p := range ports {
			e.Ports = append(e.Ports, &networking.ServicePort{Number: p.Number, Name: p.Name, Protocol: protocolOf(p.Protocol)})
		}
		for _, one := range endpoints {
			e.Endpoints = append(e.Endpoints, workload(one, ports))
		}
		return e
	}
}

// protocolOf returns the protocol of a port of a ServiceEntry. Those do not describe interfaces of Dubbo.
func protocolOf(p mesh.Protocol) string {
	if p == mesh.Dubbo {
		p = mesh.TCP
	}
	return strings.ToUpper(p.String())
}

// workload returns an endpoint as ServiceEntries have it.
func workload(e mesh.Endpoint, ports []mesh.Port) *networking.WorkloadEntry {
	w := &networking.WorkloadEntry{
		Address: e.Address, Labels: map[string]string{}, Weight: e.Weight, Locality: e.Locality.String(), Network: e.Network, ServiceAccount: e.ServiceAccount,
	}
	for l := range e.Labels.All() {
		w.Labels[l.Name] = l.Value
	}
	of := maps.Clone(e.Ports)
	maps.DeleteFunc(of, func(name string, _ uint32) bool {
		return !slices.ContainsFunc(ports, func(p mesh.Port) bool { return p.Name == name })
	})
	w.Ports = of
	return w
}
