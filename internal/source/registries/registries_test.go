package registries

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/source"
)

// table is a sink that keeps the objects in force.
type table struct {
	mu       sync.Mutex
	rows     map[api.Key]*registry.Service
	problems []string
	synced   bool
	batches  int
}

func (t *table) Apply(b source.Batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows = map[api.Key]*registry.Service{}
	}
	t.batches++
	t.synced = t.synced || b.Synced
	for _, e := range b.Events {
		if s, ok := e.Value.(*registry.Service); ok {
			t.rows[e.Key] = s
		} else if e.Removed() {
			delete(t.rows, e.Key)
		}
	}
	for _, p := range b.Problems {
		text := string(p.Problem.Code) + " " + p.Problem.String()
		if p.Gone {
			t.problems = slices.DeleteFunc(t.problems, func(s string) bool { return s == text })
		} else {
			t.problems = append(t.problems, text)
		}
	}
}

// complete reports whether the source has sent all that it had at its start.
func (t *table) complete() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.synced
}

// show returns the endpoints that get traffic as "host:port address …", one service a line.
func (t *table) show() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for k, s := range t.rows {
		for _, p := range s.Spec.Ports {
			line := fmt.Sprintf("%s:%d", k.Name, p.Number)
			for i := range s.Endpoints {
				if e := &s.Endpoints[i]; e.Health == mesh.Healthy && e.Port(p) != 0 {
					line += fmt.Sprintf(" %s:%d", e.Address, e.Port(p))
				}
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (t *table) has(code string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.problems, func(p string) bool { return strings.HasPrefix(p, code+" ") })
}

// scripted is a reader that a test drives.
type scripted struct{ listeners chan Listener }

func (s scripted) Run(ctx context.Context, to Listener) {
	s.listeners <- to
	<-ctx.Done()
}

// bed runs a source with scripted readers.
type bed struct {
	*testing.T
	path string
	table
	source    *Source
	listeners chan Listener
	stop      func()
}

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newBed(t *testing.T, file string, watch bool) *bed {
	b := &bed{T: t, path: filepath.Join(t.TempDir(), "registries.yaml"), listeners: make(chan Listener, 10)}
	b.write(file)
	factory := func(Entry, Access, *slog.Logger) (Reader, error) { return scripted{b.listeners}, nil }
	s, err := New(Options{Path: b.path, Domain: "cluster.local", Log: quietLog(), Factories: map[string]Factory{Consul: factory, Nacos: factory}})
	if err != nil {
		t.Fatal(err)
	}
	b.source = s
	ctx, cancel := context.WithCancel(context.Background())
	if !watch { // the watcher of files does not run in a bubble of synctest
		f, content, err := s.load()
		if err != nil {
			t.Fatal(err)
		}
		s.sink = &b.table
		s.apply(ctx, f, content, true)
		b.stop = func() {
			cancel()
			s.running.Wait()
		}
		return b
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, &b.table) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return b
}

func (b *bed) write(file string) {
	b.Helper()
	if err := os.WriteFile(b.path, []byte(file), 0o600); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) want(lines ...string) {
	b.Helper()
	if got := b.show(); got != strings.Join(lines, "\n") {
		b.Fatalf("in force are\n%s\nwanted\n%s", got, strings.Join(lines, "\n"))
	}
}

func (b *bed) state(want string) {
	b.Helper()
	if got := b.source.Statuses()[0]; got.State != want {
		b.Fatalf("the state is %s (%q, %d held), wanted %s", got.State, got.LastError, got.Held, want)
	}
}

func at(addresses ...string) *Service {
	s := &Service{HostName: "web", Suffix: "test"}
	for _, a := range addresses {
		s.Instances = append(s.Instances, Instance{ID: a, Address: a, Ports: []Port{{Number: 80}}})
	}
	return s
}

const one = `registries: [{type: consul, name: c, addresses: ["192.0.2.1:8500"]%s}]`

// TestProtection: a first list after a loss of sight takes away few instances at most, until it is believed or they come back. A list that a healthy
// server changes is believed at once.
func TestProtection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, fmt.Sprintf(one, ""), false)
		defer b.stop()
		to := <-b.listeners
		to.List(Services{"web": at("192.0.2.1", "192.0.2.2", "192.0.2.3"), "db": named("db", at("192.0.2.9"))}, true)
		full := []string{"db.test:80 192.0.2.9:80", "web.test:80 192.0.2.1:80 192.0.2.2:80 192.0.2.3:80"}
		b.want(full...)
		b.state(registry.Synced)

		to.Lost(errors.New("gone"))
		b.want(full...)
		b.state(registry.Stale)
		to.List(Services{"web": at("192.0.2.4")}, true) // all but a new one are missing
		b.want("db.test:80 192.0.2.9:80", "web.test:80 192.0.2.1:80 192.0.2.2:80 192.0.2.3:80 192.0.2.4:80")
		b.state(registry.Held)
		if !b.has("registry-held") {
			t.Errorf("no Problem about what is held: %q", b.problems)
		}
		to.Change(Services{"web": at("192.0.2.1", "192.0.2.4")}) // one is back
		to.Change(Services{"web": at("192.0.2.4")})              // and is gone by the word of a healthy server
		b.want("db.test:80 192.0.2.9:80", "web.test:80 192.0.2.2:80 192.0.2.3:80 192.0.2.4:80")
		wait(59 * time.Second)
		b.state(registry.Held)
		wait(2 * time.Second)
		synctest.Wait()
		b.want("web.test:80 192.0.2.4:80")
		b.state(registry.Synced)
		to.Change(Services{"web": nil})
		b.want("")
	})
}

// TestHeldOrder: held instances keep their place, so that proxies are sent nothing while all are held.
func TestHeldOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, fmt.Sprintf(one, ", protection: {hold: 1h}"), false)
		defer b.stop()
		to := <-b.listeners
		all := at("192.0.2.9", "192.0.2.10", "192.0.2.3")
		for i := range all.Instances {
			all.Instances[i].ID = fmt.Sprint(i) // another order than by addresses
		}
		to.List(Services{"web": all}, true)
		full := "web.test:80 192.0.2.9:80 192.0.2.10:80 192.0.2.3:80"
		b.want(full)
		to.List(Services{}, true)
		b.state(registry.Held)
		b.want(full)
	})
}

// TestProtectionEnds when all that is missing has come back.
func TestProtectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, fmt.Sprintf(one, ", protection: {hold: 1h}"), false)
		defer b.stop()
		to := <-b.listeners
		to.List(Services{"web": at("192.0.2.1", "192.0.2.2", "192.0.2.3")}, true)
		to.List(Services{}, true)
		b.state(registry.Held)
		to.Change(Services{"web": at("192.0.2.1", "192.0.2.2", "192.0.2.3")})
		b.state(registry.Synced)
		to.List(Services{"web": at("192.0.2.1", "192.0.2.2")}, true) // a third is within the threshold
		b.want("web.test:80 192.0.2.1:80 192.0.2.2:80")
		to.List(Services{}, false) // the server does not show all
		b.state(registry.Held)
		if !b.has("registry-refused") {
			t.Errorf("no Problem about a shortened list: %q", b.problems)
		}
	})
}

// TestReplaced: an instance that comes back under another ID is no removal.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, fmt.Sprintf(one, ""), false)
		defer b.stop()
		to := <-b.listeners
		to.List(Services{"web": at("192.0.2.1", "192.0.2.2", "192.0.2.3")}, true)
		other := at("192.0.2.1", "192.0.2.2", "192.0.2.3")
		for i := range other.Instances {
			other.Instances[i].ID = "other" + other.Instances[i].ID
		}
		to.List(Services{"web": other}, true)
		b.state(registry.Synced)
		before := b.batches
		to.Change(Services{"web": at("192.0.2.1", "192.0.2.2", "192.0.2.3")})
		if b.batches != before {
			t.Errorf("another ID of the same addresses sent a batch")
		}
	})
}

// TestReady: readiness waits for a required registry for readyTimeout at most.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, fmt.Sprintf(one, ", readyTimeout: 3s"), false)
		defer b.stop()
		<-b.listeners
		wait(2 * time.Second)
		synctest.Wait()
		if b.complete() {
			t.Error("the source is complete before the registry was listed")
		}
		wait(2 * time.Second)
		synctest.Wait()
		if !b.complete() {
			t.Error("the source waits for the registry for ever")
		}
		b.state(registry.Connecting)
	})
}

// wait lets time pass in a bubble of synctest.
func wait(d time.Duration) { <-time.After(d) }

func named(name string, s *Service) *Service {
	s.HostName = name
	return s
}

// TestHostConflict: of two services with one host, the one whose name is the host's except for upper case is served.
func TestHostConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, fmt.Sprintf(one, ""), false)
		defer b.stop()
		to := <-b.listeners
		to.List(Services{"a_b": named("a_b", at("192.0.2.1")), "A-B": named("A-B", at("192.0.2.2")), "..": named("..", at("192.0.2.3"))}, true)
		b.want("a-b.test:80 192.0.2.2:80")
		if !b.has("registry-host-conflict") || !b.has("registry-name") {
			t.Errorf("Problems are missing: %q", b.problems)
		}
		to.Change(Services{"A-B": nil})
		b.want("a-b.test:80 192.0.2.1:80")
		if b.has("registry-host-conflict") {
			t.Errorf("the conflict is over: %q", b.problems)
		}
	})
}

// TestConvert holds the rules about one service.
func TestConvert(t *testing.T) {
	tests := []struct {
		name    string
		entry   string // fields of the entry
		service Service
		want    string // ports, then endpoints
		code    string // of a Problem; empty for none
	}{
		{"plain", "", *at("192.0.2.1"), "http-80@80 STATIC; 192.0.2.1 http-80=80 w1", ""},
		{"protocol of the registry", "protocol: grpc", *at("192.0.2.1"), "grpc-80@80 STATIC; 192.0.2.1 grpc-80=80 w1", ""},
		{"protocol of the instance", "protocol: grpc", instance("192.0.2.1", "", map[string]string{"protocol": "TCP"}), "tcp-80@80 STATIC; 192.0.2.1 tcp-80=80 w1", ""},
		{"unknown protocol", "", instance("192.0.2.1", "", map[string]string{"protocol": "smoke"}), "tcp-80@80 STATIC; 192.0.2.1 tcp-80=80 w1", "registry-protocol"},
		{"unreadable protocol", "", Service{HostName: "web", Suffix: "test", Instances: []Instance{{ID: "a", Address: "192.0.2.1", Ports: []Port{{Number: 80, Protocol: "tcp", Remark: "why"}}}}}, "tcp-80@80 STATIC; 192.0.2.1 tcp-80=80 w1", "registry-protocol"},
		{"one port for all", "vport: {default: 8080}", *at("192.0.2.1"), "http-8080@8080 STATIC; 192.0.2.1 http-8080=80 w1", ""},
		{"one port for the service", "vport: {default: 8080, services: [{name: web, value: 90}]}", *at("192.0.2.1"), "http-90@90 STATIC; 192.0.2.1 http-90=80 w1", ""},
		{"loopback", "", *at("127.0.0.1"), "STATIC", "registry-instance"},
		{"allowed loopback", "allowLoopback: true", *at("127.0.0.1"), "http-80@80 STATIC; 127.0.0.1 http-80=80 w1", ""},
		{"loopback as a mapped address", "", *at("::ffff:127.0.0.1"), "STATIC", "registry-instance"},
		{"localhost", "", *at("localhost"), "STATIC", "registry-instance"},
		{"link-local", "", *at("169.254.169.254"), "STATIC", "registry-instance"},
		{"unspecified", "", *at("::"), "STATIC", "registry-instance"},
		{"empty", "", *at(""), "STATIC", "registry-instance"},
		{"IPv6", "", *at("[2001:db8::1]"), "http-80@80 STATIC; 2001:db8::1 http-80=80 w1", ""},
		{"a name", "", *at("db.example.com", "192.0.2.1"), "http-80@80 DNS; db.example.com http-80=80 w1; 192.0.2.1 http-80=80 w1", ""},
		{"fraction", "", instance("192.0.2.1", "0.5", nil), "http-80@80 STATIC; 192.0.2.1 http-80=80 w5/10", ""},
		{"no weight", "", instance("192.0.2.1", "0", nil), "http-80@80 STATIC; 192.0.2.1 http-80=80 w1 down", ""},
		{"negative weight", "", instance("192.0.2.1", "-1", nil), "http-80@80 STATIC; 192.0.2.1 http-80=80 w1", "registry-weight"},
		{"huge weight", "", instance("192.0.2.1", "1e300", nil), "http-80@80 STATIC; 192.0.2.1 http-80=80 w1073741823", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, err := Decode([]byte("registries: [{type: consul, addresses: [\"h:1\"], " + test.entry + "}]"))
			if err != nil {
				t.Fatal(err)
			}
			is := converter{&f.Registries[0], 0, "cluster.local"}.convert("web", &test.service)
			if got := describe(is.service); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			codes := ""
			for _, p := range is.problems {
				codes += string(p.Code)
			}
			if codes != test.code {
				t.Errorf("got the Problems %q, want %q: %v", codes, test.code, is.problems)
			}
		})
	}
}

func instance(address, weight string, labels map[string]string) Service {
	s := at(address)
	s.Instances[0].Weight, s.Instances[0].Labels = weight, labels
	return *s
}

func describe(s *registry.Service) string {
	var parts []string
	for _, p := range s.Spec.Ports {
		parts = append(parts, fmt.Sprintf("%s@%d", p.Name, p.Number))
	}
	text := strings.Join(append(parts, s.Spec.Resolution.String()), " ")
	for _, e := range s.Endpoints {
		text += "; " + e.Address
		for name, n := range e.Ports {
			text += fmt.Sprintf(" %s=%d", name, n)
		}
		text += fmt.Sprintf(" w%d", e.Weight)
		if s.Scale > 1 {
			text += fmt.Sprintf("/%d", s.Scale)
		}
		if e.Health != mesh.Healthy {
			text += " down"
		}
	}
	return text
}

// TestHosts holds which hosts services have.
func TestHosts(t *testing.T) {
	for _, test := range []struct{ entry, name, want string }{
		{"", "Web", "web.test"},
		{"hostSuffix: x.y", "web_1", "web-1.x.y"},
		{`hostSuffix: ""`, "web.shop", "web.shop"},
		{`hostSuffix: ""`, "kubernetes.default.svc.cluster.local", "refused"},
		{"hosts: [{service: web, host: web.shop.svc.cluster.local}]", "web", "web.shop.svc.cluster.local"},
		{"hosts: [{service: \"*\", host: \"{service}.legacy.mesh\"}]", "a/b", "a-b.legacy.mesh"},
		{"", "*", "refused"},
		{"", "a..b", "refused"},
		{`hostSuffix: ""`, "192.0.2.1", "refused"},
	} {
		f, err := Decode([]byte("registries: [{type: consul, addresses: [\"h:1\"], " + test.entry + "}]"))
		if err != nil {
			t.Fatal(err)
		}
		is := converter{&f.Registries[0], 0, "cluster.local"}.convert(test.name, named(test.name, at("192.0.2.1")))
		got := is.host
		if is.refused {
			got = "refused"
		}
		if got != test.want {
			t.Errorf("%s %q: the host is %s, want %s", test.entry, test.name, got, test.want)
		}
	}
}

// TestDecode: mistakes in the file are named with their line or path.
func TestDecode(t *testing.T) {
	for _, test := range []struct{ file, want string }{
		{"registries:\n- type: consul\n  nme: x\n", "line 3: registries[0].nme: unknown field"},
		{"registries:\n- {type: consul, tls: {ca: f}}\n", "line 2: registries[0].tls.ca: unknown field"},
		{"registries: [{type: etcd}]", `registries[0].type: "etcd" is unknown`},
		{"registries: [{type: consul}]", "registries[0].addresses: it is missing"},
		{"registries: [{type: consul, addresses: [h]}]", `registries[0].addresses[0]: "h" is not HOST:PORT`},
		{"registries: [{type: memory}, {type: memory}]", "registries[1].name: registries[0] has the name"},
		{"registries: [{type: memory, name: Kubernetes}]", "registries[0].name:"},
		{"registries: [{type: memory, protocol: smoke}]", "registries[0].protocol:"},
		{"registries: [{type: memory, refreshInterval: 1ms}]", "registries[0].refreshInterval: 1ms is too short"},
		{"registries: [{type: memory, services: [{host: a}]}]", "registries[0].services[0]: it needs host and ports"},
		{"registries: [{type: consul, addresses: [\"h:1\"], tls: {certFile: f}}]", "registries[0].tls: certFile and keyFile belong together"},
		{"registries: [{type: mcp, addresses: [\"192.0.2.1:15012\"]}]", "registries[0].addresses[0]: 192.0.2.1:15012 can only be read over TLS"},
		{"registries: [{type: mcp, addresses: [\"127.0.0.1:1\", \"pilot.test:15012\"], tls: {insecureSkipVerify: true}}]", "registries[0].tls.insecureSkipVerify: the identity of pilot.test:15012"},
		{"migrations: [{weights: {a: 1}}]", "migrations[0].host: it is missing"},
		{"migrations: [{host: a, weights: {a: -1}}]", "cannot unmarshal"},
		{"a: [", "no YAML"},
		{"# nothing\n", "it is empty"},
	} {
		_, err := Decode([]byte(test.file))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.file, err, test.want)
		}
	}
}

// TestFileChanges: a changed file touches the registries that differ only, and a broken one nothing.
func TestFileChanges(t *testing.T) {
	const db = `{type: memory, name: m, services: [{host: db.legacy, ports: [{number: 5432, protocol: tcp}], endpoints: [{address: %s, ports: {"5432": 5433}}]}]}`
	b := newBed(t, fmt.Sprintf("registries: ["+db+", {type: consul, name: c, addresses: [\"h:1\"]}]", "192.0.2.5"), true)
	defer b.stop()
	to := <-b.listeners
	to.List(Services{"web": at("192.0.2.1")}, true)
	b.await("db.legacy:5432 192.0.2.5:5433", "web.test:80 192.0.2.1:80")
	b.write("registries: [{type: memory, nme: x}]")
	b.until(func() bool { return b.has("registry-file") })
	b.want("db.legacy:5432 192.0.2.5:5433", "web.test:80 192.0.2.1:80")
	b.write(fmt.Sprintf("registries: ["+db+", {type: consul, name: c, addresses: [\"h:1\"], vport: {default: 90}}]", "192.0.2.6"))
	b.await("db.legacy:5432 192.0.2.6:5433", "web.test:90 192.0.2.1:80")
	if b.has("registry-file") {
		t.Errorf("the file is good again: %q", b.problems)
	}
	b.write(fmt.Sprintf("registries: ["+db+"]", "192.0.2.6"))
	b.await("db.legacy:5432 192.0.2.6:5433")
	if len(b.listeners) != 0 {
		t.Error("a change of vport restarted the reader")
	}
}

func (b *bed) await(lines ...string) {
	b.Helper()
	b.until(func() bool { return b.show() == strings.Join(lines, "\n") })
	b.want(lines...)
}

func (b *bed) until(is func() bool) {
	b.Helper()
	end := time.NewTimer(20 * time.Second)
	defer end.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-end.C:
			b.Fatalf("it did not come about; in force are\n%s\n%q", b.show(), b.problems)
		case <-tick.C:
		}
	}
}

// TestSecrets: errors about a file with secrets contain none.
func TestSecrets(t *testing.T) {
	for _, text := range []string{"hunter2", "consulTokn=hunter2", "=hunter2"} {
		if _, err := parseAuth(text); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
	got, err := parseAuth("# comment\n\nnacosPassword = a=b \nzkDigest=u:p\n")
	if err != nil || got[NacosPassword] != "a=b" || got[ZKDigest] != "u:p" {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("registries: [{type: memory, services: [{host: a.b, ports: [{number: 1}], endpoints: [{address: x, weight: .5}]}]}]\nmigrations: [{host: a, weights: {b: 1}}]"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = Decode(data) })
}

// FuzzConvert: whatever a registry says, a service has valid hosts, ports, addresses and weights.
func FuzzConvert(f *testing.F) {
	f.Add("web", "192.0.2.1", uint32(80), "http", "1", "k", "v")
	f.Add("../*", "::ffff:0.0.0.0", uint32(1<<20), "dubbo", "NaN", "a/b/c", "\xff")
	f.Fuzz(func(t *testing.T, name, address string, port uint32, protocol, weight, key, value string) {
		file, err := Decode([]byte(`registries: [{type: consul, addresses: ["h:1"]}]`))
		if err != nil {
			t.Fatal(err)
		}
		is := converter{&file.Registries[0], 0, "cluster.local"}.convert(name, &Service{HostName: name, Suffix: "test", Instances: []Instance{
			{ID: name, Address: address, Ports: []Port{{Number: port, Protocol: protocol}}, Weight: weight, Labels: map[string]string{key: value}},
		}})
		if is.refused {
			return
		}
		for _, e := range is.service.Endpoints {
			if e.Weight == 0 || !mesh.ValidPort(e.Ports[is.service.Spec.Ports[0].Name]) || e.Address == "" {
				t.Errorf("the endpoint %v of %q", e, address)
			}
		}
	})
}
