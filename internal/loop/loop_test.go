package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	classes "github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const reviews = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews.example.com]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.1, labels: {app: reviews}}]
`

const sidecarForWeb = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  egress: [{hosts: ["other/*"]}]
`

// stream is a fake of a connected stream. It keeps the last state and can wait for one.
type stream struct {
	mu      sync.Mutex
	state   *resource.State
	count   int
	answers map[string]protocol.Answer // by name
	updated chan struct{}
}

func newStream() *stream { return &stream{updated: make(chan struct{}, 1)} }

func (s *stream) Update(st *resource.State) {
	s.mu.Lock()
	s.state, s.count = st, s.count+1
	s.mu.Unlock()
	select {
	case s.updated <- struct{}{}:
	default:
	}
}

// Answer keeps the last answer to each name.
func (s *stream) Answer(list []protocol.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers == nil {
		s.answers = map[string]protocol.Answer{}
	}
	for _, a := range list {
		s.answers[a.Name] = a
	}
}

// wait returns the first state that satisfies ok.
func (s *stream) wait(t *testing.T, what string, ok func(*resource.State) bool) *resource.State {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		st := s.state
		s.mu.Unlock()
		if st != nil && ok(st) {
			return st
		}
		select {
		case <-s.updated:
		case <-deadline:
			t.Fatalf("no state with %s", what)
		}
	}
}

func has(typ resource.Type, name string) func(*resource.State) bool {
	return func(s *resource.State) bool { _, ok := s.Get(typ, name); return ok }
}

func lacks(typ resource.Type, name string) func(*resource.State) bool {
	return func(s *resource.State) bool { _, ok := s.Get(typ, name); return !ok }
}

type fixture struct {
	*Loop
	t       *testing.T
	mu      sync.Mutex
	commits []Commit
	secrets store.Table[string, string] // by name; each is for one namespace, which is its content
}

// start runs a loop with one source that has listed nothing yet.
func start(t *testing.T, s Settings) *fixture {
	f := &fixture{t: t}
	s.Sources = []string{"test"}
	s.Observe = func(c Commit) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.commits = append(f.commits, c)
	}
	tables := state.New(state.Options{Sources: s.Sources})
	g := query.New(tables.DB, query.Options{Strict: true})
	f.secrets = store.NewTable[string, string](tables.DB, "testSecrets", func(a, b string) bool { return a == b })
	q := classes.Define(g, tables, classes.Provider{Type: resource.Secret, Find: f.secret})
	f.Loop = New(tables, g, q, s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) apply(yaml string, deleted ...api.Key) {
	b := source.Batch{Source: "test", Synced: true}
	for _, o := range meshtest.Parse(f.t, yaml) {
		b.Events = append(b.Events, source.Event{Key: o.Key, Object: o})
	}
	for _, k := range deleted {
		b.Events = append(b.Events, source.Event{Key: k})
	}
	f.Apply(b)
}

func (f *fixture) attach(id, metadata string) (*Connection, *stream) {
	f.t.Helper()
	<-f.Synced()
	s := newStream()
	c, err := f.Attach(meshtest.Node(f.t, id, metadata), s)
	if err != nil {
		f.t.Fatal(err)
	}
	return c, s
}

// settled waits until everything queued so far is done.
func (f *fixture) settled(fn func(*View)) {
	f.t.Helper()
	if err := f.Inspect(f.t.Context(), fn); err != nil {
		f.t.Fatal(err)
	}
}

const web0 = "sidecar~10.1.0.1~web-0.shop~shop.svc.cluster.local"

func TestNobodyIsAdmittedBeforeAllIsRead(t *testing.T) {
	f := start(t, Settings{})
	if _, err := f.Attach(meshtest.Node(t, web0, ""), newStream()); !errors.Is(err, errNotReady) {
		t.Fatalf("before the source has listed: %v, want ErrNotReady", err)
	}
	f.Apply(source.Batch{Source: "test"})
	f.settled(func(*View) {})
	select {
	case <-f.Synced():
		t.Fatal("ready though the source has not listed everything")
	default:
	}
	f.apply(reviews)
	_, s := f.attach(web0, "")
	s.wait(t, "the cluster", has(resource.Cluster, "outbound|80||reviews.example.com"))
}

func TestChangesReachStreams(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	_, s := f.attach(web0, "")
	first := s.wait(t, "the assignment", has(resource.Endpoint, "outbound|80||reviews.example.com"))
	_, twin := f.attach("sidecar~10.1.0.2~web-1.shop~shop.svc.cluster.local", "")
	twin.wait(t, "its twin's state", func(st *resource.State) bool { return st == first })

	f.apply(strings.Replace(reviews, "10.0.0.1", "10.0.0.2", 1))
	was, _ := first.Get(resource.Endpoint, "outbound|80||reviews.example.com")
	next := s.wait(t, "another address", func(st *resource.State) bool {
		now, _ := st.Get(resource.Endpoint, "outbound|80||reviews.example.com")
		return now.Version() != was.Version()
	})
	if next.Revision <= first.Revision || next.Published.Before(first.Published) {
		t.Errorf("revision %d at %v follows %d at %v", next.Revision, next.Published, first.Revision, first.Published)
	}
	for _, typ := range []resource.Type{resource.Cluster, resource.Listener, resource.Route} {
		if !next.Layers(typ).Same(first.Layers(typ)) {
			t.Errorf("%v changed with an endpoint", typ)
		}
	}
	before := s.count
	f.apply(strings.Replace(reviews, "10.0.0.1", "10.0.0.2", 1))
	f.settled(func(*View) {})
	if s.count != before {
		t.Error("the stream received a state although nothing has changed")
	}
}

// TestClassFollowsConfiguration checks that a new Sidecar that selects a connected proxy moves the proxy to another class, and
// that its deletion moves it back.
func TestClassFollowsConfiguration(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	_, web := f.attach(web0, `{"LABELS":{"app":"web"}}`)
	_, db := f.attach("sidecar~10.1.0.2~db-0.shop~shop.svc.cluster.local", `{"LABELS":{"app":"db"}}`)
	cluster := "outbound|80||reviews.example.com"
	web.wait(t, "the cluster", has(resource.Cluster, cluster))
	db.wait(t, "the cluster", has(resource.Cluster, cluster))

	f.apply(sidecarForWeb)
	web.wait(t, "only what its Sidecar imports", lacks(resource.Cluster, cluster))
	f.settled(func(v *View) {
		if len(v.Classes) < 2 {
			t.Errorf("classes: %v", v.Classes)
		}
	})
	if !has(resource.Cluster, cluster)(db.state) {
		t.Error("a Sidecar for web narrowed what db sees")
	}
	f.apply("", api.Key{Kind: "Sidecar", Namespace: "shop", Name: "web"})
	web.wait(t, "the cluster again", has(resource.Cluster, cluster))
}

// TestLeavingFreesTheClass checks that a class is kept for classGrace after its last proxy has left, and not longer.
func TestLeavingFreesTheClass(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	c, s := f.attach(web0, "")
	s.wait(t, "the cluster", has(resource.Cluster, "outbound|80||reviews.example.com"))
	c.Close()
	f.settled(func(v *View) {
		if len(v.Classes) != 1 || v.Tables.Proxies.Len() != 0 {
			t.Errorf("after the last proxy left: classes %v, %d proxies", v.Classes, v.Tables.Proxies.Len())
		}
		f.releaseClasses(time.Now().Add(classGrace / 2))
		if len(f.classes) != 1 {
			t.Error("the class was removed at once")
		}
		f.releaseClasses(time.Now().Add(2 * classGrace))
	})
	f.settled(func(*View) {})
	f.settled(func(v *View) {
		if cells := v.Graph.Cells(); cells["state"] != 0 || len(v.Classes) != 0 {
			t.Errorf("the class is kept: %v", cells)
		}
	})
}

// TestGroupCommit checks that jobs that arrive while the loop is busy become one commit.
func TestGroupCommit(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	<-f.Synced()
	busy, release := make(chan struct{}), make(chan struct{})
	f.queue.add(&job{after: func() { close(busy); <-release }})
	<-busy
	for i := range 50 {
		f.apply(strings.Replace(reviews, "10.0.0.1", fmt.Sprintf("10.0.1.%d", i), 1))
	}
	close(release)
	f.settled(func(*View) {}) // This may be part of the commit, which is observed after its jobs.
	f.settled(func(*View) {})
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.commits[len(f.commits)-1]
	if len(f.commits) != 2 || last.Jobs < 50 || last.Objects["test"] != 1 || len(last.Changed) != 1 || last.Changed[0].Name != "reviews" {
		t.Errorf("50 batches became %d commits, the last one of %d jobs and %d objects: %v", len(f.commits)-1, last.Jobs, last.Objects["test"], last.Changed)
	}
}

// TestNamed: a commit of a few objects names them in order; one of many has only their number.
func TestNamed(t *testing.T) {
	a, b := api.Key{Kind: "ServiceEntry", Name: "a"}, api.Key{Kind: "ServiceEntry", Name: "b"}
	if got := named([]api.Key{b, a, b}, maxNamed); !slices.Equal(got, []api.Key{a, b}) {
		t.Errorf("got %v", got)
	}
	if got := named([]api.Key{b, a}, maxNamed+1); got != nil {
		t.Errorf("got %v of too many", got)
	}
}

// TestPanicInWrite checks that a panic in the writes of one batch loses only that batch. The other batches of the commit and
// all later ones take effect.
func TestPanicInWrite(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	_, s := f.attach(web0, "")
	f.queue.add(&job{write: func(*store.Txn) { panic("a bug") }})
	f.apply(strings.ReplaceAll(reviews, "reviews", "ratings"))
	s.wait(t, "what was applied after the panic", has(resource.Cluster, "outbound|80||ratings.example.com"))
}

// TestPanicInInspection checks that a panic in a debug page becomes an error of that page.
func TestPanicInInspection(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	if err := f.Inspect(t.Context(), func(*View) { panic("a bug") }); err == nil {
		t.Error("no error")
	}
	_, s := f.attach(web0, "")
	s.wait(t, "the cluster", has(resource.Cluster, "outbound|80||reviews.example.com"))
}

// TestMinInterval checks that the first change after a pause is not delayed and the next one is.
func TestMinInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Settings{MinInterval: time.Minute})
		f.apply(reviews)
		<-f.Synced()
		<-time.After(90 * time.Second)
		begin := time.Now()
		f.settled(func(*View) {})
		if took := time.Since(begin); took != 0 {
			t.Errorf("after a pause a job waits %v", took)
		}
		f.settled(func(*View) {})
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("the next one is done after %v", took)
		}
	})
}

// TestProblems checks that problems of objects are reported whether or not a proxy uses the objects, until they are corrected.
func TestProblems(t *testing.T) {
	f := start(t, Settings{})
	const rule = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews.example.com]
  http: [{route: [{destination: {host: nowhere.example.com}}]}]
`
	f.apply(reviews)
	f.apply(rule)
	<-f.Synced()
	f.eventually("a problem with the destination", func(v *View) bool {
		for _, p := range v.Problems.All() {
			if p.Object.Kind == "VirtualService" && strings.Contains(p.Reason, "nowhere.example.com") {
				return true
			}
		}
		return false
	})
	f.apply(strings.Replace(rule, "nowhere", "reviews", 1))
	f.eventually("no problem", func(v *View) bool { return v.Problems.Len() == 0 })
}

// eventually inspects until ok, which background work brings about.
func (f *fixture) eventually(what string, ok func(*View) bool) {
	f.t.Helper()
	for range 1000 {
		seen := false
		f.settled(func(v *View) { seen = ok(v) })
		if seen {
			return
		}
	}
	f.t.Fatalf("%s: not seen", what)
}

// TestRejectionIsAProblemOfItsObjects checks that the objects from which rejected content was made have a problem until they
// change or the proxy leaves.
func TestRejectionIsAProblemOfItsObjects(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	c, s := f.attach(web0, "")
	name := "outbound|80||reviews.example.com"
	bad, _ := s.wait(t, "the cluster", has(resource.Cluster, name)).Get(resource.Cluster, name)
	reported := func(v *View) bool {
		for _, p := range v.Problems.All() {
			if p.Object.Kind == "ServiceEntry" && p.Object.Name == "reviews" && strings.Contains(p.Reason, "no such thing") && strings.Contains(p.Reason, web0) {
				return true
			}
		}
		return false
	}
	pin := func() {
		c.Pin([]reject.Pin{{Type: resource.Cluster, Name: name, Rejected: bad.ContentHash()}}, "no such thing")
	}
	pin()
	f.eventually("a problem of the ServiceEntry", reported)
	f.apply(strings.Replace(reviews, "number: 80,", "number: 80, targetPort: 8080,", 1) + "\n---\n" + strings.ReplaceAll(connectionPool, "N", "7"))
	f.eventually("no problem once the content is another", func(v *View) bool { return !reported(v) })
	f.apply("", api.Key{Kind: "DestinationRule", Namespace: "shop", Name: "reviews"})
	f.eventually("the problem again with the content", reported)
	c.Close()
	f.eventually("no problem once the proxy has left", func(v *View) bool { return !reported(v) && v.Tables.Rejections.Len() == 0 })
}

const connectionPool = `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec: {host: reviews.example.com, trafficPolicy: {connectionPool: {tcp: {maxConnections: N}}}}
`

// TestBrokenTranslationIsAProblem checks that an object that makes a query panic has a problem. The last good value stays in
// force, and other changes take effect.
func TestBrokenTranslationIsAProblem(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	_, s := f.attach(web0, "")
	s.wait(t, "the route", has(resource.Route, "80"))
	// No source would let this through: a name that cannot be encoded.
	bad := &api.Object{Key: api.Key{Kind: "VirtualService", Namespace: "shop", Name: "bad"}, Spec: &networking.VirtualService{
		Hosts: []string{"reviews.example.com"}, Http: []*networking.HTTPRoute{{
			Name: "\xff", Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "reviews.example.com"}}},
		}},
	}}
	f.Apply(source.Batch{Source: "test", Synced: true, Events: []source.Event{{Key: bad.Key, Object: bad}}})
	f.eventually("a problem of the broken object", func(v *View) bool {
		for _, p := range v.Problems.All() {
			if p.Object == bad.Key && strings.Contains(p.Reason, "internal error") {
				return true
			}
		}
		return false
	})
	f.apply(strings.ReplaceAll(reviews, "reviews", "ratings"))
	st := s.wait(t, "another service", has(resource.Cluster, "outbound|80||ratings.example.com"))
	if !has(resource.Route, "80")(st) {
		t.Error("the route configuration was removed")
	}
	f.settled(func(v *View) {
		if v.Tables.Faults.Len() != 1 || f.hasLookups() {
			t.Errorf("%d rows of faults, lookups waiting: %v; want one row and no lookup", v.Tables.Faults.Len(), f.hasLookups())
		}
	})
	f.apply("", bad.Key)
	f.eventually("no problem once the object is gone", func(v *View) bool { return v.Problems.Len() == 0 && v.Tables.Faults.Len() == 0 })
}
