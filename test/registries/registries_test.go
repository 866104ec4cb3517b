// Package registries tests the sources of registries against real servers.
package registries

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/consul"
	nacossource "github.com/pilotmesh/pilot/internal/source/nacos"
	"github.com/pilotmesh/pilot/internal/source/registries"
	"github.com/pilotmesh/pilot/internal/source/zookeeper"
	"github.com/pilotmesh/pilot/test/registries/servers"
	"github.com/pilotmesh/pilot/test/repo"
)

const patience = 30 * time.Second

// server is a real server of a test.
type server struct {
	*testing.T
	*servers.Server
	consul *servers.Consul
}

func (s *server) start() {
	s.Helper()
	if err := s.Start(s.Context()); err != nil {
		s.Fatal(err)
	}
}

func (s *server) kill() { s.Kill() }

// startServer starts a server, or skips the test where it is missing.
func startServer(t *testing.T, one *servers.Server, consul *servers.Consul, err error) *server {
	t.Helper()
	if missing, ok := errors.AsType[*servers.Missing](err); ok {
		t.Skip(missing)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t, one, consul}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-end.C:
			t.Fatalf("%s: not within %v", what, patience)
		case <-tick.C:
		}
	}
}

// newConsul starts a Consul without persistent data.
func newConsul(t *testing.T) *server {
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	c, err := servers.NewConsul(root, t.TempDir())
	if err != nil {
		return startServer(t, nil, nil, err)
	}
	return startServer(t, c.Server, c, nil)
}

// register registers a service on a node, with one check.
func (s *server) register(node, service, address string, port int, status string) {
	s.Helper()
	if err := s.consul.Register(s.Context(), servers.Instance{Node: node, Service: service, Address: address, Port: port, Status: status}); err != nil {
		s.Fatal(err)
	}
}

// check sets a check of a node.
func (s *server) check(node, status string) {
	s.Helper()
	_, err := s.consul.Call(s.Context(), http.MethodPut, "/v1/catalog/register", map[string]any{
		"Node": node, "Address": "192.0.2.200", "SkipNodeUpdate": true, "Check": map[string]any{"Node": node, "CheckID": "node", "Name": "node", "Status": status},
	})
	if err != nil {
		s.Fatal(err)
	}
}

// table is a sink that keeps the objects in force.
type table struct {
	mu   sync.Mutex
	rows map[api.Key]*registry.Service
}

// Apply implements source.Sink.
func (t *table) Apply(b source.Batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range b.Events {
		if s, ok := e.Value.(*registry.Service); ok {
			t.rows[e.Key] = s
		} else {
			delete(t.rows, e.Key)
		}
	}
}

func (t *table) show() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for k, s := range t.rows {
		for _, p := range s.Spec.Ports {
			line := fmt.Sprintf("%s:%d %s", k.Name, p.Number, p.Protocol)
			for _, e := range s.Endpoints {
				if n := e.Port(p); e.Health == mesh.Healthy && n != 0 {
					line += fmt.Sprintf(" %s:%d", e.Address, n)
				}
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// bed is a source that reads one registry.
type bed struct {
	*testing.T
	table
	source *registries.Source
}

func newBed(t *testing.T, entry string) *bed {
	file := filepath.Join(t.TempDir(), "registries.yaml")
	if err := os.WriteFile(file, []byte("registries: ["+entry+"]"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := registries.New(registries.Options{
		Path: file, Domain: "cluster.local", Log: slog.New(slog.DiscardHandler),
		Factories: map[string]registries.Factory{registries.Consul: consul.New, registries.ZooKeeper: zookeeper.New, registries.Nacos: nacossource.New},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, table: table{rows: map[api.Key]*registry.Service{}}, source: s}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, &b.table) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bed) want(state string, lines ...string) {
	b.Helper()
	text := strings.Join(lines, "\n")
	defer func() {
		if b.Failed() {
			b.Logf("in force are\n%s\nwanted\n%s\n%+v", b.show(), text, b.source.Statuses())
		}
	}()
	until(b.T, "the services in force", func() bool {
		list := b.source.Statuses() // empty until the file is read
		return len(list) == 1 && list[0].State == state && b.show() == text
	})
}

// TestConsul: registered services are in force, with their changes; a server that is killed takes nothing along, and one that comes back without its data
// loses nothing for a while.
func TestConsul(t *testing.T) {
	s := newConsul(t)
	s.register("n1", "web", "192.0.2.1", 8080, "passing")
	s.register("n2", "web", "192.0.2.2", 8080, "critical")
	s.register("n1", "db", "192.0.2.1", 5432, "passing")
	b := newBed(t, fmt.Sprintf(`{type: consul, addresses: ["127.0.0.1:1", "127.0.0.1:%d"], protection: {hold: 1h}}`, s.Port))
	b.want(registry.Synced, "db.service.consul:5432 TCP 192.0.2.1:5432", "web.service.consul:8080 TCP 192.0.2.1:8080")
	s.register("n2", "web", "192.0.2.2", 8080, "passing")
	s.register("n3", "cache", "192.0.2.3", 6379, "warning")
	all := []string{"cache.service.consul:6379 TCP 192.0.2.3:6379", "db.service.consul:5432 TCP 192.0.2.1:5432", "web.service.consul:8080 TCP 192.0.2.1:8080 192.0.2.2:8080"}
	b.want(registry.Synced, all...)
	s.kill()
	b.want(registry.Stale, all...)
	s.start()
	s.register("n4", "web", "192.0.2.4", 8080, "passing")
	b.want(registry.Held, all[0], all[1], "web.service.consul:8080 TCP 192.0.2.1:8080 192.0.2.2:8080 192.0.2.4:8080")
	s.register("n1", "web", "192.0.2.1", 8080, "passing")
	s.register("n2", "web", "192.0.2.2", 8080, "passing")
	s.register("n1", "db", "192.0.2.1", 5432, "passing")
	s.register("n3", "cache", "192.0.2.3", 6379, "passing")
	b.want(registry.Synced, all[0], all[1], "web.service.consul:8080 TCP 192.0.2.1:8080 192.0.2.2:8080 192.0.2.4:8080")
	if err := s.consul.Deregister(t.Context(), servers.Instance{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	b.want(registry.Synced, all[0], "web.service.consul:8080 TCP 192.0.2.2:8080 192.0.2.4:8080")
}

// TestManyConsulServices: more services than there are blocking queries are followed, too: checks of services and of nodes, changes that no check
// shows, and nodes that come and go.
func TestManyConsulServices(t *testing.T) {
	for name, nodes := range map[string]int{"few nodes": 0, "many nodes": 40} {
		t.Run(name, func(t *testing.T) { manyConsulServices(t, nodes) })
	}
}

// manyConsulServices is the test with so many further nodes.
func manyConsulServices(t *testing.T, nodes int) {
	s := newConsul(t)
	for i := range nodes {
		s.check(fmt.Sprintf("further%d", i), "passing")
	}
	const services = 200
	var lines []string
	for i := range services {
		s.register("n1", fmt.Sprintf("s%03d", i), "192.0.2.1", 1000+i, "passing")
		lines = append(lines, fmt.Sprintf("s%03d.service.consul:%d TCP 192.0.2.1:%d", i, 1000+i, 1000+i))
	}
	b := newBed(t, fmt.Sprintf(`{type: consul, addresses: ["127.0.0.1:%d"]}`, s.Port))
	b.want(registry.Synced, lines...)
	s.register("n1", "s000", "192.0.2.1", 1000, "critical")
	lines[0] = "s000.service.consul:1000 TCP"
	b.want(registry.Synced, lines...)
	s.register("n2", "s001", "192.0.2.2", 1001, "passing")
	lines[1] += " 192.0.2.2:1001"
	b.want(registry.Synced, lines...)
	s.register("n2", "s001", "192.0.2.3", 1001, "passing") // its check stays as it is
	lines[1] = strings.ReplaceAll(lines[1], "192.0.2.2", "192.0.2.3")
	b.want(registry.Synced, lines...)
	s.check("n2", "critical")
	lines[1] = strings.ReplaceAll(lines[1], " 192.0.2.3:1001", "")
	b.want(registry.Synced, lines...)
	if err := s.consul.Deregister(t.Context(), servers.Instance{Node: "n1", Service: "s002"}); err != nil {
		t.Fatal(err)
	}
	lines = slices.Delete(lines, 2, 3)
	b.want(registry.Synced, lines...)
	s.register("n3", "s002", "192.0.2.4", 1002, "passing")
	b.want(registry.Synced, slices.Insert(slices.Clone(lines), 2, "s002.service.consul:1002 TCP 192.0.2.4:1002")...)
	s.register("n3", "s003", "192.0.2.5", 1003, "passing")
	more := slices.Insert(slices.Clone(lines), 2, "s002.service.consul:1002 TCP 192.0.2.4:1002")
	more[3] += " 192.0.2.5:1003"
	b.want(registry.Synced, more...)
	if err := s.consul.Deregister(t.Context(), servers.Instance{Node: "n3"}); err != nil {
		t.Fatal(err)
	}
	b.want(registry.Synced, lines...)
	s.register("n3", "s003", "192.0.2.6", 1003, "passing")
	lines[2] += " 192.0.2.6:1003"
	b.want(registry.Synced, lines...)
}

// TestFewerConsulServices: when most of many services leave a healthy server, they are gone, and the rest is followed one by one again.
func TestFewerConsulServices(t *testing.T) {
	s := newConsul(t)
	var list []servers.Instance
	for i := range 200 {
		list = append(list, servers.Instance{Node: "n1", Service: fmt.Sprintf("s%03d", i), Address: "192.0.2.1", Port: 1000})
	}
	if err := s.consul.RegisterAll(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	s.register("n2", "web", "192.0.2.2", 80, "passing")
	b := newBed(t, fmt.Sprintf(`{type: consul, addresses: ["127.0.0.1:%d"], protection: {hold: 1h}}`, s.Port))
	until(t, "all services", func() bool { return strings.Count(b.show(), "\n") == 200 })
	if err := s.consul.Deregister(t.Context(), servers.Instance{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	b.want(registry.Synced, "web.service.consul:80 TCP 192.0.2.2:80")
	s.register("n2", "web", "192.0.2.3", 80, "passing")
	b.want(registry.Synced, "web.service.consul:80 TCP 192.0.2.3:80")
}
