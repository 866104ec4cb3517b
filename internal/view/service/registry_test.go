package service_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/view/service"
)

const joined = "a.shop.svc.cluster.local"

// registered is a service of a registry with one port, and endpoints with a weight each.
func registered(order int, protocol mesh.Protocol, port uint32, endpoints ...string) *registry.Service {
	name := fmt.Sprintf("%s-%d", strings.ToLower(protocol.String()), port)
	s := &registry.Service{
		Order: order, Named: "a", ExportTo: []string{"*"}, Scale: 1,
		Spec: &mesh.Service{Name: "a", Namespace: "registries", Resolution: mesh.Static, Ports: []mesh.Port{{Number: port, Name: name, Protocol: protocol}}},
	}
	for _, text := range endpoints {
		e := mesh.Endpoint{OnlyPorts: true, Ports: map[string]uint32{name: port}}
		address, weight, _ := strings.Cut(text, "*")
		e.Address, e.Weight = address, 1
		if weight == "down" {
			e.Health = mesh.Unusable
		} else if weight != "" {
			if _, err := fmt.Sscan(weight, &e.Weight); err != nil {
				panic(err) // the weights are constants of the test
			}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func inRegistry(name, host string) api.Key { return registry.ServiceKey(name, "registries", host) }

// TestRegistries holds what hosts that registries have are: alone, beside a Service, a ServiceEntry and each other, and with a migration.
func TestRegistries(t *testing.T) {
	west, east := inRegistry("west", joined), inRegistry("east", joined)
	kubernetes := func(v values) values {
		v[in("home", kube.KindService, "a")] = clusterIP("10.96.0.1", kube.ServicePort{Name: "http", Number: 80, Protocol: mesh.HTTP, Target: 8080})
		addPod(v, "home", "10.0.0.1", "one", kube.SlicePort{Name: "http", Number: 8080})
		return v
	}
	entry := func(resolution, exportTo string) string {
		return `{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: a, namespace: shop}, spec: {hosts: [` + joined + `], exportTo: ["` + exportTo +
			`"], resolution: ` + resolution + `, ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}], endpoints: [{address: 10.1.0.1}]}}`
	}
	half := registered(1, mesh.HTTP, 80, "192.0.2.2*500", "192.0.2.3*1500")
	half.Scale = 1000
	private := registered(0, mesh.HTTP, 80, "192.0.2.1")
	private.ExportTo = []string{"."}
	migration := func(weights map[string]uint32) *registry.Migration { return &registry.Migration{Weights: weights} }
	to := registry.MigrationKey(joined)
	steps := []struct {
		name, entry string
		values      values
	}{
		{"alone", "", values{west: registered(0, mesh.HTTP, 80, "192.0.2.1")}},
		{"alone, for its namespace", "", values{west: private}},
		{"the first registry decides the ports", "", values{west: registered(1, mesh.TCP, 90, "192.0.2.1"), east: registered(0, mesh.HTTP, 80, "192.0.2.2")}},
		{"the first registry decides who sees it", "", values{west: private, east: registered(1, mesh.HTTP, 80, "192.0.2.2")}},
		{"an address that two have", "", values{west: registered(0, mesh.HTTP, 80, "192.0.2.1*7"), east: registered(1, mesh.HTTP, 80, "192.0.2.1*9", "192.0.2.2")}},
		{"fractions beside whole weights", "", values{west: registered(0, mesh.HTTP, 80, "192.0.2.1"), east: half}},
		{"beside a Service", "", kubernetes(values{west: registered(0, mesh.TCP, 9999, "192.0.2.1")})},
		{"beside a ServiceEntry, by number", entry("STATIC", "*"), values{west: registered(0, mesh.TCP, 443, "192.0.2.1")}},
		{"beside a ServiceEntry, by protocol", entry("STATIC", "*"), values{west: registered(0, mesh.HTTP, 8080, "192.0.2.1")}},
		{"beside a ServiceEntry, without a port that fits", entry("STATIC", "*"), values{west: registered(0, mesh.Mongo, 27017, "192.0.2.1")}},
		{"beside a ServiceEntry that resolves names", entry("DNS", "*"), values{west: registered(0, mesh.HTTP, 80, "192.0.2.1")}},
		{"beside a ServiceEntry that others do not see", entry("STATIC", "."), values{west: registered(0, mesh.HTTP, 80, "192.0.2.1")}},
		{"migration", "", kubernetes(values{west: registered(0, mesh.HTTP, 80, "192.0.2.1*3", "192.0.2.2*1"), to: migration(map[string]uint32{"Kubernetes": 10, "west": 90})})},
		{"migration by the ID of a cluster", "", kubernetes(values{west: registered(0, mesh.HTTP, 80, "192.0.2.1"), to: migration(map[string]uint32{"home": 25, "west": 75})})},
		{"migration to a registry without endpoints that serve", "", kubernetes(values{west: registered(0, mesh.HTTP, 80, "192.0.2.1*down"), to: migration(map[string]uint32{"Kubernetes": 10, "west": 90})})},
		{"migration to nobody who can serve", "", kubernetes(values{west: registered(0, mesh.HTTP, 80, "192.0.2.1*down"), to: migration(map[string]uint32{"west": 100})})},
		{"migration without a share for the Service", "", kubernetes(values{west: registered(0, mesh.HTTP, 80, "192.0.2.1"), to: migration(map[string]uint32{"west": 1})})},
	}
	archive := &txtar.Archive{Comment: []byte("What a host is that registries have: the endpoints with their registries and weights, and the Problems.\n\n")}
	for _, step := range steps {
		w := meshtest.NewWith(t, meshtest.Options{ClusterID: "home"})
		if step.entry != "" {
			w.Apply(step.entry)
		}
		w.Observe(step.values)
		w.Check()
		archive.Files = append(archive.Files, txtar.File{Name: step.name, Data: []byte(whoServes(w))})
	}
	golden(t, "testdata/registries.txt", txtar.Format(archive))
}

// whoServes describes the endpoints of the host, as clients of another namespace see it.
func whoServes(w *meshtest.World) string {
	var b strings.Builder
	r := w.Graph.Naive()
	s, ok := w.Queries.Services.Service.Get(r, service.HostView{Host: joined})
	if !ok {
		fmt.Fprintln(&b, "no service")
	} else {
		fmt.Fprintf(&b, "%s in %s\n", s.Resolution, s.Namespace)
		for _, p := range s.Ports {
			fmt.Fprintf(&b, "port %d %s\n", p.Number, p.Protocol)
			for _, e := range w.Queries.Services.Share(r, joined, w.Queries.Services.Endpoints(r, s, p.Number)) {
				fmt.Fprintf(&b, "  %s:%d of %s, weight %d, health %d\n", e.Address, e.Port, e.Source, e.Weight, e.Health)
			}
		}
	}
	for _, p := range w.Problems() {
		fmt.Fprintln(&b, p)
	}
	return b.String()
}

// TestRegistryLeaves: when a registry or a Service loses the host, the endpoints of the others stay, and the next definition counts.
func TestRegistryLeaves(t *testing.T) {
	w := meshtest.NewWith(t, meshtest.Options{ClusterID: "home"})
	v := values{inRegistry("west", joined): registered(0, mesh.HTTP, 80, "192.0.2.1")}
	v[in("home", kube.KindService, "a")] = clusterIP("10.96.0.1", tcp("tcp", 70))
	w.Observe(v)
	w.Check()
	w.Observe(values{in("home", kube.KindService, "a"): nil})
	w.Check()
	if got := whoServes(w); !strings.Contains(got, "port 80 HTTP\n  192.0.2.1:80 of west") {
		t.Errorf("after the Service has gone:\n%s", got)
	}
	w.Observe(values{inRegistry("west", joined): nil})
	w.Check()
	if got := whoServes(w); got != "no service\n" {
		t.Errorf("after all have gone:\n%s", got)
	}
}
