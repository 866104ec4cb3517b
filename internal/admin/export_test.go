package admin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/source"
)

// TestExportPage: the page has the services of the requested registries, or of all, with the parts that ServiceEntries cannot express.
func TestExportPage(t *testing.T) {
	w := newWorld(t, shop)
	of := func(order int, address string, health mesh.Health) *registry.Service {
		port := mesh.Port{Number: 80, Name: "http-80", Protocol: mesh.HTTP}
		return &registry.Service{
			Order: order, Named: "web", ExportTo: []string{"*"}, Scale: 1,
			Spec:      &mesh.Service{Name: "web", Namespace: "default", Ports: []mesh.Port{port}, Resolution: mesh.Static},
			Endpoints: []mesh.Endpoint{{Address: address, Weight: 1, OnlyPorts: true, Ports: map[string]uint32{"http-80": 8080}, Health: health}},
		}
	}
	w.loop.Apply(source.Batch{Source: sourceName, Synced: true, Events: []source.Event{
		{Key: registry.MigrationKey("web.test"), Value: &registry.Migration{Weights: map[string]uint32{"west": 1}}},
		{Key: registry.ServiceKey("east", "default", "web.test"), Value: of(1, "192.0.2.2", mesh.Healthy)},
		{Key: registry.ServiceKey("west", "default", "down.test"), Value: of(0, "192.0.2.3", mesh.Unusable)},
		{Key: registry.ServiceKey("west", "default", "web.test"), Value: of(0, "192.0.2.1", mesh.Healthy)},
	}})
	w.settle()
	for query, want := range map[string]string{
		"":                             "[west] down-test 0 endpoints, lost 1; [west east] web-test 2 endpoints, lost 1",
		"?registry=west":               "[west] down-test 0 endpoints, lost 1; [west] web-test 1 endpoints, lost 1",
		"?registry=east":               "[east] web-test 1 endpoints, lost 1",
		"?registry=east&registry=west": "[west] down-test 0 endpoints, lost 1; [west east] web-test 2 endpoints, lost 1",
		"?registry=none":               "",
	} {
		var list []Exported
		w.read("/debug/exportz"+query, &list)
		var parts []string
		for _, e := range list {
			parts = append(parts, fmt.Sprintf("%v %s %d endpoints, lost %d", e.Registries, e.Name, strings.Count(string(e.Spec), "192.0.2."), len(e.Lost)))
		}
		if got := strings.Join(parts, "; "); got != want {
			t.Errorf("%q: got %s, want %s", query, got, want)
		}
	}
}
