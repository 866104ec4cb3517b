package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// at is an endpoint that serves some ports.
func at(address string, weight uint32, ports map[string]uint32) mesh.Endpoint {
	return mesh.Endpoint{Address: address, Weight: weight, OnlyPorts: true, Ports: ports}
}

func down(e mesh.Endpoint) mesh.Endpoint {
	e.Health = mesh.Unusable
	return e
}

// ofRegistry is a service of a registry with ports of HTTP, each named by its number.
func ofRegistry(order int, resolution mesh.Resolution, ports []uint32, endpoints ...mesh.Endpoint) *Service {
	s := &Service{Order: order, ExportTo: []string{"*"}, Scale: 1, Spec: &mesh.Service{Resolution: resolution}, Endpoints: endpoints}
	for _, n := range ports {
		s.Spec.Ports = append(s.Spec.Ports, mesh.Port{Number: n, Name: fmt.Sprint(n), Protocol: mesh.HTTP})
	}
	return s
}

func show(e Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s %v", e.Namespace, e.Name, e.Spec.Resolution)
	for _, p := range e.Spec.Ports {
		fmt.Fprintf(&b, " %d/%s", p.Number, p.Protocol)
	}
	for _, w := range e.Spec.Endpoints {
		fmt.Fprintf(&b, "; %s w%d", w.Address, w.Weight)
		for _, name := range slices.Sorted(maps.Keys(w.Ports)) {
			fmt.Fprintf(&b, " %s=%d", name, w.Ports[name])
		}
	}
	for _, l := range e.Lost {
		fmt.Fprintf(&b, " (%s)", l)
	}
	return b.String()
}

// TestExport holds what becomes of services, host by host.
func TestExport(t *testing.T) {
	one := map[string]uint32{"80": 8080}
	dubbo := ofRegistry(0, mesh.Static, []uint32{80}, at("192.0.2.1", 1, one))
	dubbo.Spec.Ports[0].Protocol, dubbo.Spec.Dubbo = mesh.Dubbo, &mesh.DubboInterface{Interface: "a.B"}
	tenths := ofRegistry(1, mesh.Static, []uint32{80}, at("192.0.2.2", 5, one))
	tenths.Scale = 10
	tests := []struct {
		name string
		all  map[api.Key]*Service
		want string
	}{
		{"one", map[api.Key]*Service{ServiceKey("r", "n", "a.mesh"): ofRegistry(0, mesh.Static, []uint32{80}, at("192.0.2.1", 3, one))},
			"n/a-mesh STATIC 80/HTTP; 192.0.2.1 w3 80=8080"},
		{"an instance without traffic", map[api.Key]*Service{ServiceKey("r", "n", "a.mesh"): ofRegistry(0, mesh.Static, []uint32{80}, at("192.0.2.1", 1, one), down(at("192.0.2.2", 1, one)))},
			"n/a-mesh STATIC 80/HTTP; 192.0.2.1 w1 80=8080 (instances that must not get traffic are left out: 1)"},
		{"no name is resolved in the place of instances without traffic", map[api.Key]*Service{ServiceKey("r", "n", "a.mesh"): ofRegistry(0, mesh.DNS, []uint32{80}, down(at("db.test", 1, one)))},
			"n/a-mesh STATIC 80/HTTP (instances that must not get traffic are left out: 1)"},
		{"names", map[api.Key]*Service{ServiceKey("r", "n", "a.mesh"): ofRegistry(0, mesh.DNS, []uint32{80}, at("db.test", 1, one))}, "n/a-mesh DNS 80/HTTP; db.test w1 80=8080"},
		{"instances with different ports", map[api.Key]*Service{ServiceKey("r", "n", "a.mesh"): ofRegistry(0, mesh.Static, []uint32{80, 81}, at("192.0.2.1", 1, map[string]uint32{"81": 81}), at("192.0.2.2", 1, map[string]uint32{"80": 80, "81": 81}))},
			"n/a-mesh STATIC 80/HTTP 81/HTTP; 192.0.2.2 w1 80=80 81=81\nn/a-mesh.81 STATIC 81/HTTP; 192.0.2.1 w1 81=81"},
		{"two registries, in the order of the file and one unit of weights", map[api.Key]*Service{
			ServiceKey("a", "other", "a.mesh"): tenths,
			ServiceKey("b", "n", "a.mesh"):     ofRegistry(0, mesh.Static, []uint32{80}, at("192.0.2.1", 1, one)),
		}, "n/a-mesh STATIC 80/HTTP; 192.0.2.1 w10 80=8080; 192.0.2.2 w5 80=8080"},
		{"an address that both have, and another port", map[api.Key]*Service{
			ServiceKey("a", "n", "a.mesh"): ofRegistry(0, mesh.Static, []uint32{80}, at("192.0.2.1", 1, one)),
			ServiceKey("b", "n", "a.mesh"): ofRegistry(1, mesh.Static, []uint32{90}, at("192.0.2.1", 1, map[string]uint32{"90": 8080}), at("192.0.2.3", 1, map[string]uint32{"90": 9090})),
		}, "n/a-mesh STATIC 80/HTTP; 192.0.2.1 w1 80=8080; 192.0.2.3 w1 80=9090 (instances of other registries that no port of the first one fits, or that it has too, are left out: 1)"},
		{"Dubbo", map[api.Key]*Service{ServiceKey("r", "n", "a.mesh"): dubbo},
			"n/a-mesh STATIC 80/TCP; 192.0.2.1 w1 80=8080 (calls of Dubbo are not led by interface, group and version, so that the port is TCP)"},
		{"hosts with one name", map[api.Key]*Service{
			ServiceKey("r", "n", "a.b"): ofRegistry(0, mesh.Static, []uint32{80}), ServiceKey("r", "n", "a-b"): ofRegistry(0, mesh.Static, []uint32{81}),
		}, "n/a-b STATIC 81/HTTP\nn/a-b.host-2 STATIC 80/HTTP"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var lines []string
			for _, e := range Export(test.all) {
				lines = append(lines, show(e))
			}
			if got := strings.Join(lines, "\n"); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}
