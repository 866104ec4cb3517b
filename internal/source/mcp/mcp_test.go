package mcp

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/registries"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	entries  = "networking.istio.io/v1/ServiceEntry"
	policies = "security.istio.io/v1/AuthorizationPolicy"
)

// table is a sink that keeps the objects in force.
type table struct {
	mu       sync.Mutex
	objects  map[api.Key]*api.Object
	problems map[api.Problem]bool
	synced   bool
	wake     chan struct{}
}

func (b *table) Apply(batch source.Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range batch.Events {
		if batch.Source != "mcp/m" {
			panic("an object of " + batch.Source)
		}
		if b.objects[e.Key] = e.Object; e.Object == nil {
			delete(b.objects, e.Key)
		}
	}
	for _, p := range batch.Problems {
		if b.problems[p.Problem] = true; p.Gone {
			delete(b.problems, p.Problem)
		}
	}
	b.synced = b.synced || batch.Source == registries.Name && batch.Synced
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// String lists objects with the address of their first endpoint, or the word for a substitute.
func (b *table) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []string
	for k, o := range b.objects {
		line := k.Kind + " " + k.Namespace + "/" + k.Name
		if e, ok := o.Spec.(*networking.ServiceEntry); ok {
			line += " " + e.Endpoints[0].Address
		}
		if o.Substitute {
			line += " denies"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// texts returns the problems.
func (b *table) texts() (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range b.problems {
		list = append(list, p.String())
	}
	return list
}

func (b *table) has(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range b.problems {
		if strings.Contains(string(p.Code)+" "+p.String(), text) {
			return true
		}
	}
	return false
}

// complete reports whether the source has sent all that it had at its start.
func (b *table) complete() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.synced
}

// bed is a source that reads a server.
type bed struct {
	*testing.T
	*table
	source *registries.Source
	stop   func()
}

func read(t *testing.T, state, entry string) *bed {
	t.Helper()
	path := filepath.Join(t.TempDir(), "registries.yaml")
	if err := os.WriteFile(path, []byte("registries: ["+entry+"]"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, table: &table{objects: map[api.Key]*api.Object{}, problems: map[api.Problem]bool{}, wake: make(chan struct{}, 1)}}
	var err error
	b.source, err = registries.New(registries.Options{
		Path: path, Domain: "cluster.local", State: statefile.Dir(state), Log: slog.New(slog.DiscardHandler),
		Factories: map[string]registries.Factory{registries.MCP: Factory(Options{ClusterID: "here", Namespace: "istio-system"})},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.source.Run(ctx, b.table) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	b.stop = stop
	t.Cleanup(stop)
	return b
}

func (b *bed) until(what string, ok func() bool) {
	b.Helper()
	limit := time.After(20 * time.Second)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-b.wake:
		case <-again.C:
		case <-limit:
			b.Fatalf("%s: not reached; in force: %s; state %s; problems: %v", what, b.table, b.state(), b.texts())
		}
	}
}

func (b *bed) want(objects string) {
	b.Helper()
	b.until(objects, func() bool { return b.table.String() == objects })
}

// state is the state of the server; empty before the source has begun.
func (b *bed) state() string {
	for _, one := range b.source.Statuses() {
		return one.State
	}
	return ""
}

func entry(address string) *networking.ServiceEntry {
	return &networking.ServiceEntry{
		Hosts: []string{"a.test"}, Resolution: networking.ServiceEntry_STATIC, Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		Endpoints: []*networking.WorkloadEntry{{Address: address}},
	}
}

func policy(path string) *security.AuthorizationPolicy {
	return &security.AuthorizationPolicy{Action: security.AuthorizationPolicy_DENY, Rules: []*security.Rule{{
		To: []*security.Rule_To{{Operation: &security.Operation{Paths: []string{path}}}},
	}}}
}

func variants(t *testing.T, test func(t *testing.T, s *server, entry string)) {
	for _, delta := range []bool{false, true} {
		t.Run(map[bool]string{false: "sotw", true: "delta"}[delta], func(t *testing.T) {
			s := newServer(t)
			s.delta = delta
			test(t, s, fmt.Sprintf("{type: mcp, name: m, addresses: [%q]}", s.address))
		})
	}
}

// TestFollow: objects come, change and go; one that cannot be read costs itself, and the server hears which one it is.
func TestFollow(t *testing.T) {
	variants(t, func(t *testing.T, s *server, at string) {
		s.put(entries, "shop/a", entry("192.0.2.1"))
		s.put(entries, "shop/b", entry("192.0.2.1"))
		b := read(t, "", at)
		b.want("ServiceEntry shop/a 192.0.2.1, ServiceEntry shop/b 192.0.2.1")
		b.until("synced", func() bool { return b.state() == "synced" && b.complete() })
		s.put(entries, "shop/a", entry("192.0.2.2"))
		b.want("ServiceEntry shop/a 192.0.2.2, ServiceEntry shop/b 192.0.2.1")
		s.putBody(entries, "shop/a", &anypb.Any{TypeUrl: "type.googleapis.com/istio.networking.v1alpha3.ServiceEntry", Value: []byte{0xff}})
		s.put(entries, "shop/b", entry("192.0.2.3"))
		b.want("ServiceEntry shop/a 192.0.2.2, ServiceEntry shop/b 192.0.2.3")
		b.until("refused", func() bool {
			return strings.Contains(s.said(), "shop/a") && strings.Contains(s.said(), "cannot be decoded")
		})
		b.until("a Problem", func() bool { return b.has("registry m") && b.has("cannot be decoded") })
		s.put(entries, "nowhere", entry("192.0.2.9"))
		s.put(entries, "shop/c", &networking.ServiceEntry{})
		s.put(entries, "shop/d", entry("192.0.2.4"))
		b.want("ServiceEntry shop/a 192.0.2.2, ServiceEntry shop/b 192.0.2.3, ServiceEntry shop/d 192.0.2.4")
		b.until("no namespace", func() bool { return b.has("NAMESPACE/NAME") })
		s.put(entries, "shop/a", entry("192.0.2.5"))
		s.remove(entries, "shop/b", "shop/d", "nowhere", "shop/c")
		b.want("ServiceEntry shop/a 192.0.2.5")
		b.until("no Problem", func() bool { return len(b.source.Statuses()[0].Problems) == 0 })
	})
}

// TestGone: a server that goes away takes nothing along, and one that comes back empty is not believed at once.
func TestGone(t *testing.T) {
	variants(t, func(t *testing.T, s *server, at string) {
		s.put(entries, "shop/a", entry("192.0.2.1"))
		s.put(entries, "shop/b", entry("192.0.2.1"))
		s.put(entries, "shop/c", entry("192.0.2.1"))
		b := read(t, "", strings.TrimSuffix(at, "}")+", protection: {hold: 1h}}")
		b.until("listed", func() bool { return b.state() == "synced" })
		all := b.table.String()
		s.grpc.Stop()
		b.until("stale", func() bool { return b.state() == "stale" })
		if got := b.table.String(); got != all {
			t.Errorf("without the server: %s", got)
		}
		s.remove(entries, "shop/a", "shop/b", "shop/c")
		s.put(entries, "shop/d", entry("192.0.2.2"))
		s.restart()
		b.want(all + ", ServiceEntry shop/d 192.0.2.2")
		b.until("held", func() bool { return b.state() == "held" && b.source.Statuses()[0].Held == 3 })
		s.put(entries, "shop/a", entry("192.0.2.3"))
		b.want("ServiceEntry shop/a 192.0.2.3, ServiceEntry shop/b 192.0.2.1, ServiceEntry shop/c 192.0.2.1, ServiceEntry shop/d 192.0.2.2")
		s.remove(entries, "shop/d")
		b.want("ServiceEntry shop/a 192.0.2.3, ServiceEntry shop/b 192.0.2.1, ServiceEntry shop/c 192.0.2.1")
	})
}

// TestVersions: a new stream names the versions of the former one.
func TestVersions(t *testing.T) {
	variants(t, func(t *testing.T, s *server, at string) {
		s.put(entries, "shop/a", entry("192.0.2.1"))
		b := read(t, "", at)
		b.until("listed", func() bool { return b.state() == "synced" })
		s.edit(func() { s.heard = nil })
		s.restart()
		want := entries + ` version="v`
		if s.delta {
			want = "delta " + entries + " had=[shop/a]"
		}
		b.until(want, func() bool { return strings.Contains(s.said(), want) })
		b.until("listed again", func() bool { return b.state() == "synced" })
		b.want("ServiceEntry shop/a 192.0.2.1")
	})
}

// TestPolicies: an access policy that cannot be read denies if no good version is known. The last good version is in force after a restart, also if the
// server cannot be reached then.
func TestPolicies(t *testing.T) {
	s, state := newServer(t), t.TempDir()
	at := fmt.Sprintf("{type: mcp, name: m, addresses: [%q], readyTimeout: 1s}", s.address)
	s.put(policies, "shop/good", policy("/a"))
	garbage := &anypb.Any{TypeUrl: "type.googleapis.com/istio.security.v1beta1.AuthorizationPolicy", Value: []byte{0xff}}
	s.putBody(policies, "shop/bad", garbage)
	newer := policy("/b")
	newer.ProtoReflect().SetUnknown([]byte{0xfa, 0x3e, 0x01, 'x'})
	s.put(policies, "shop/newer", newer)
	b := read(t, state, at)
	b.want("AuthorizationPolicy shop/bad denies, AuthorizationPolicy shop/good, AuthorizationPolicy shop/newer denies")
	b.until("a Problem", func() bool { return b.has("policy-refused") })
	s.putBody(policies, "shop/good", garbage)
	b.until("refused", func() bool { return strings.Count(s.said(), "refused") > 1 })
	b.want("AuthorizationPolicy shop/bad denies, AuthorizationPolicy shop/good, AuthorizationPolicy shop/newer denies")
	b.stop()
	s.grpc.Stop()
	again := read(t, state, at)
	again.want("AuthorizationPolicy shop/good")
	again.until("ready", func() bool { return again.complete() })
	s.remove(policies, "shop/bad", "shop/newer")
	s.restart()
	again.until("read", func() bool { return again.state() == "synced" })
	again.want("AuthorizationPolicy shop/good")
	s.remove(policies, "shop/good")
	again.want("")
}

// TestKnock: the token goes along, a refusal is a state, and a server that answers few kinds is listed nevertheless.
func TestKnock(t *testing.T) {
	s := newServer(t)
	auth := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(auth, []byte("mcpToken=secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.refuse, s.silent = codes.PermissionDenied, []string{"VirtualService", "Sidecar"}
	s.put(entries, "shop/a", entry("192.0.2.1"))
	b := read(t, "", fmt.Sprintf("{type: mcp, name: m, addresses: [%q], authFile: %q}", s.address, auth))
	b.until("failed", func() bool { return b.state() == "failed" && b.has("registry-refused") })
	if b.has("secret") {
		t.Error("a Problem has the token")
	}
	s.edit(func() { s.refuse = codes.OK })
	b.until("listed", func() bool { return b.state() == "synced" && b.complete() })
	b.want("ServiceEntry shop/a 192.0.2.1")
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.tokens, []string{"Bearer secret"}) || !strings.Contains(strings.Join(s.heard, "\n"), "api here") {
		t.Errorf("tokens %q, requests %q", s.tokens, s.heard)
	}
}

func newReader(t testing.TB) *reader {
	r, err := Factory(Options{ClusterID: "here", Namespace: "istio-system"})(registries.Entry{Name: "m", Addresses: []string{"192.0.2.1:1"}}, registries.Access{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.(*reader)
}

// TestOwn: objects that come back are left out, and the others note through whom they came.
func TestOwn(t *testing.T) {
	r := newReader(t)
	kind, _ := api.FindKind(api.KindServiceEntry)
	for through, want := range map[string]string{
		"": "xds://192.0.2.1:1", "there": "there", "here": "here", "here,there": "own", "far,here,there": "own", "far,there": "far,there", "here2,there": "here2,there",
		strings.Repeat("x,", maxThrough): "",
	} {
		body, err := anypb.New(entry("192.0.2.1"))
		if err != nil {
			t.Fatal(err)
		}
		one, err := anypb.New(&mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: "shop/a", Annotations: map[string]string{api.ServedThrough: through}}, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		d := r.decode(kind, received{any: one})
		got := ""
		if d.own {
			got = "own"
		} else if o := d.Object.Object; o != nil {
			got = o.Annotations[api.ServedThrough]
		}
		if got != want {
			t.Errorf("%.20q: %q, want %q", through, got, want)
		}
	}
}

// FuzzDecode: whatever a server sends, a resource is an object of its name, a substitute, or refused with a reason.
func FuzzDecode(f *testing.F) {
	for _, spec := range []proto.Message{entry("192.0.2.1"), policy("/a")} {
		body, err := anypb.New(spec)
		if err != nil {
			f.Fatal(err)
		}
		raw, err := proto.Marshal(&mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: "shop/a", Labels: map[string]string{"a": "b"}}, Body: body})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(0), "", raw)
		f.Add(uint8(9), "shop/a", raw)
	}
	r := newReader(f)
	f.Fuzz(func(t *testing.T, k uint8, name string, raw []byte) {
		kind := r.subscriptions[int(k)%len(r.subscriptions)].kind
		d := r.decode(kind, received{name: name, any: &anypb.Any{TypeUrl: "type.googleapis.com/istio.mcp.v1alpha1.Resource", Value: raw}})
		switch {
		case d.own || d.remark.Reason != "":
		case d.Key.Kind != kind.Name || api.CheckNames(d.Key.Namespace, d.Key.Name) != "":
			t.Errorf("the key is %v", d.Key)
		case d.Object.Object != nil && d.Object.Object.Key != d.Key:
			t.Errorf("%v is %v", d.Key, d.Object.Object.Key)
		case d.Object.Object == nil && d.wrong() == "":
			t.Errorf("%v is refused without a reason", d.Key)
		}
	})
}
