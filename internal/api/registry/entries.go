package registry

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Entry is a ServiceEntry that is equivalent to the services of registries with one host, or to a part of their ports.
type Entry struct {
	Namespace, Name string
	// Registries are the names of the registries that have the host; the first one defines the service.
	Registries []string
	Spec       *networking.ServiceEntry
	// Lost names the parts of the services that the ServiceEntry does not have.
	Lost []string
}

// FromRows returns a service made of the rows of a control plane. created orders the registries, and layers are the namespaces that see the service, "" for
// all.
func FromRows(created int64, layers []string, spec *mesh.Service, endpoints []mesh.Endpoint, scale uint32) *Service {
	exportTo := slices.Clone(layers)
	switch {
	case len(exportTo) == 0:
		exportTo = []string{"~"}
	case slices.Contains(exportTo, ""):
		exportTo = []string{"*"}
	}
	return &Service{Order: int(created), Spec: spec, ExportTo: exportTo, Endpoints: endpoints, Scale: scale}
}

// Export returns the ServiceEntries of all services, by namespace and name. Services with one host are one service, in the namespace of the first
// registry that has it.
func Export(all map[api.Key]*Service) (entries []Entry) {
	byHost := map[string][]api.Key{}
	for k := range all {
		byHost[k.Name] = append(byHost[k.Name], k)
	}
	taken := map[api.Key]bool{}
	for _, host := range slices.Sorted(maps.Keys(byHost)) {
		keys := byHost[host]
		slices.SortFunc(keys, func(a, b api.Key) int { return cmp.Or(cmp.Compare(all[a].Order, all[b].Order), a.Compare(b)) })
		var list []*Service
		var registries []string
		for _, k := range keys {
			list, registries = append(list, all[k]), append(registries, k.Cluster)
		}
		at := api.Key{Namespace: keys[0].Namespace, Name: strings.ReplaceAll(host, ".", "-")}
		for n := 2; taken[at]; n++ { // a-b.mesh and a.b.mesh
			at.Name = fmt.Sprintf("%s.host-%d", strings.ReplaceAll(host, ".", "-"), n)
		}
		taken[at] = true
		for _, e := range Entries(at.Name, host, list) {
			e.Namespace, e.Registries = at.Namespace, registries
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return entries
}

// Entries returns the ServiceEntries of the services with a host. The first service defines ports, resolution and visibility, and all others add
// endpoints. There is one entry for each set of ports that endpoints serve, because all endpoints of a ServiceEntry serve all of its ports. The first
// entry has the name, and others have their ports after it.
func Entries(name, host string, list []*Service) (entries []Entry) {
	s := list[0]
	endpoints, lost := serving(list)
	groups := byPorts(s.Spec, endpoints)
	if len(groups) == 0 {
		groups = []group{{ports: s.Spec.Ports}}
	}
	for i, g := range groups {
		e := Entry{Name: name, Spec: specOf(host, s, g)}
		if i > 0 {
			for _, p := range g.ports {
				e.Name += fmt.Sprintf(".%d", p.Number) // no host has a dot in the name of its entry
			}
		} else {
			e.Lost = lost
		}
		entries = append(entries, e)
	}
	return entries
}

// serving returns the endpoints that take requests, with weights in one unit and with the ports of the first service, and remarks about all others.
func serving(list []*Service) (endpoints []mesh.Endpoint, lost []string) {
	unit, to := uint64(1), list[0].Spec
	for _, s := range list {
		unit = max(unit, uint64(s.Scale))
	}
	seen := map[string]bool{}
	down, foreign := 0, 0
	for i, s := range list {
		for _, e := range s.Endpoints {
			if e.Health != mesh.Healthy {
				down++
				continue
			}
			e.Weight = uint32(min(uint64(max(e.Weight, 1))*unit/uint64(max(s.Scale, 1)), math.MaxUint32/4))
			parts := attached(e, s.Spec, to, i > 0, seen)
			if len(parts) == 0 && i > 0 {
				foreign++
			}
			endpoints = append(endpoints, parts...)
		}
	}
	if down > 0 {
		lost = append(lost, fmt.Sprintf("instances that must not get traffic are left out: %d", down))
	}
	if foreign > 0 {
		lost = append(lost, fmt.Sprintf("instances of other registries that no port of the first one fits, or that it has too, are left out: %d", foreign))
	}
	if to.Dubbo != nil {
		lost = append(lost, "calls of Dubbo are not led by interface, group and version, so that the port is TCP")
	}
	return endpoints, lost
}

// attached returns an endpoint with the ports of the service that defines the host: several ones if two of its ports belong to one port of that. An
// address and port that is known already is left out.
func attached(e mesh.Endpoint, of, to *mesh.Service, joined bool, seen map[string]bool) (parts []mesh.Endpoint) {
	if joined && !to.Joinable() {
		return nil
	}
	for _, p := range of.Ports {
		number := e.Port(p)
		at := p
		if joined {
			var ok bool
			if at, ok = to.PortFor(p); !ok {
				continue
			}
		}
		place := fmt.Sprintf("%s %d %d", e.Address, number, at.Number)
		if number == 0 || seen[place] {
			continue
		}
		seen[place] = true
		i := slices.IndexFunc(parts, func(o mesh.Endpoint) bool { return o.Ports[at.Name] == 0 })
		if i < 0 {
			i = len(parts)
			one := e
			one.Ports = map[string]uint32{}
			parts = append(parts, one)
		}
		parts[i].Ports[at.Name] = number
	}
	return parts
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
			if e.Ports[p.Name] != 0 {
				ports = append(ports, p)
				key += fmt.Sprintf(".%d", p.Number)
			}
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

// specOf returns the spec of the entry of a group.
func specOf(host string, s *Service, g group) *networking.ServiceEntry {
	e := &networking.ServiceEntry{
		Hosts: []string{host}, Location: networking.ServiceEntry_MESH_INTERNAL, Resolution: networking.ServiceEntry_STATIC, ExportTo: slices.Clone(s.ExportTo),
	}
	if s.Spec.External {
		e.Location = networking.ServiceEntry_MESH_EXTERNAL
	}
	if s.Spec.Resolution == mesh.DNS && len(g.endpoints) > 0 { // without endpoints, the host itself would be resolved
		e.Resolution = networking.ServiceEntry_DNS
	}
	for _, p := range g.ports {
		e.Ports = append(e.Ports, &networking.ServicePort{Number: p.Number, Name: p.Name, Protocol: protocolOf(p.Protocol)})
	}
	for _, one := range g.endpoints {
		e.Endpoints = append(e.Endpoints, &networking.WorkloadEntry{
			Address: one.Address, Ports: one.Ports, Labels: mesh.LabelMap(one.Labels), Weight: one.Weight, Locality: one.Locality.String(), Network: one.Network,
			ServiceAccount: one.ServiceAccount,
		})
	}
	return e
}

// protocolOf returns the protocol of a port of a ServiceEntry. Those do not describe interfaces of Dubbo.
func protocolOf(p mesh.Protocol) string {
	if p == mesh.Dubbo {
		p = mesh.TCP
	}
	return strings.ToUpper(p.String())
}
