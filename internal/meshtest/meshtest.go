// Package meshtest is the control plane without sources and streams, for tests: configuration in, class states out.
//
// A World decodes YAML as the file source does, commits it, and gives both evaluations of the queries: the incremental
// one, and the naive one that works everything out from the rows. It belongs to one goroutine and starts none.
package meshtest

import (
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// sourceName is the source all objects of a World come from.
const sourceName = "test"

// T is the test interface that World needs: *testing.T, *testing.B and *rapid.T have it.
type T interface {
	Helper()
	Error(...any)
	Errorf(string, ...any)
	Fatal(...any)
}

// World is a mesh in a test.
type World struct {
	t       T
	Tables  *state.Tables
	Graph   *query.Graph
	Queries *class.Queries
	objects map[api.Key]*api.Object
	states  map[proxy.Class]*resource.State
	release map[proxy.Class]func()

	cut      bool
	problems state.Problems
	said     []api.Problem // by the source
	told     bool          // problems were published
	silence  func()        // ends the observation of problems
}

// Options of a World.
type Options struct {
	// Query are the options of its graph, which is strict in any case.
	Query query.Options
	// Cut leaves first builds unfinished by commits, as production does: Slice continues them, Settle finishes them.
	Cut bool
	// ClusterID is the cluster of the control plane.
	ClusterID string
	// Ranges are the ranges of addresses that are allocated; zero for the default.
	Ranges mesh.Ranges
	// ControlNamespace is the namespace of the control plane; empty if it does not write to a cluster.
	ControlNamespace string
	// KeyFetcher is the component that fetches the keys of tokens.
	KeyFetcher mesh.KeyFetcher
	// QUIC is true if gateways take HTTP/3.
	QUIC bool
	// StripHostPort is true if gateways remove the port from the Host of requests.
	StripHostPort bool
	// FilterGatewayClusters is true if gateways have the clusters of the services only to which they route.
	FilterGatewayClusters bool
	// Sessions is true if requests of services with sessions reach the endpoint of their session.
	Sessions bool
	// DualStack is true if proxies with addresses of both IP versions use both.
	DualStack bool
	// Unready says whether clients know endpoints that take no requests at the moment.
	Unready mesh.UnreadyEndpoints
	// SidecarRemoteAddress is true if sidecars add the address of the application to x-forwarded-for.
	SidecarRemoteAddress bool
	// ServicesBesideIngress is true if the ports of services count beside the ingress listeners of a Sidecar.
	ServicesBesideIngress bool
	// HTTP10 is true if all proxies accept HTTP/1.0.
	HTTP10 bool
	// TraceSampling is the percentage of new requests that are traced if nothing else sets one; nil for 1.
	TraceSampling *float64
	// Variable returns a variable of the control plane's environment.
	Variable func(name string) (value string, ok bool)
	// Providers defines the providers that answer proxies one by one; nil for none.
	Providers func(*query.Graph, *state.Tables) []class.Provider
}

// New returns an empty World in which every commit finishes all there is to do.
func New(t T) *World { return NewWith(t, Options{}) }

// NewWith returns an empty World with options.
func NewWith(t T, o Options) *World {
	tables := state.New(state.Options{
		ClusterID: o.ClusterID, Ranges: o.Ranges, ControlNamespace: o.ControlNamespace, KeyFetcher: o.KeyFetcher, QUIC: o.QUIC,
		FilterGatewayClusters: o.FilterGatewayClusters, DualStack: o.DualStack, Unready: o.Unready,
		SidecarRemoteAddress: o.SidecarRemoteAddress, ServicesBesideIngress: o.ServicesBesideIngress,
		StripHostPort: o.StripHostPort, HTTP10: o.HTTP10, Sessions: o.Sessions, TraceSampling: o.TraceSampling, Variable: o.Variable,
	})
	o.Query.Strict = true
	g := query.New(tables.DB, o.Query)
	var providers []class.Provider
	if o.Providers != nil {
		providers = o.Providers(g, tables)
	}
	w := &World{
		t: t, cut: o.Cut, Tables: tables, Graph: g, Queries: class.Define(g, tables, providers...),
		objects: map[api.Key]*api.Object{}, states: map[proxy.Class]*resource.State{}, release: map[proxy.Class]func(){},
	}
	w.silence = w.Queries.Problems.Observe(class.All{}, func(all state.Problems) { w.problems, w.told = all, true })
	return w
}

// Problems are the published problems, a line each, in order.
func (w *World) Problems() []string { return lines(w.problems) }

func lines(problems state.Problems) []string {
	var out []string
	for _, p := range problems.All() {
		out = append(out, p.String())
	}
	slices.Sort(out)
	return out
}

// Parse decodes objects; a Problem of any of them ends the test.
func Parse(t T, yaml string) []*api.Object {
	t.Helper()
	var list []*api.Object
	for _, d := range api.Decode("config.yaml", []byte(yaml)) {
		problems := d.Problems
		if d.Object != nil {
			problems = append(problems, api.Validate(d.Object)...)
			list = append(list, d.Object)
		}
		for _, p := range problems {
			if p.Severity == api.Error {
				t.Fatal(p)
			}
		}
	}
	return list
}

// Apply commits objects as one batch. Existing objects are replaced.
func (w *World) Apply(yaml string) {
	w.t.Helper()
	w.commit(Parse(w.t, yaml), nil)
}

// Put commits objects as one batch.
func (w *World) Put(objects ...*api.Object) { w.commit(objects, nil) }

// Delete commits the removal of objects.
func (w *World) Delete(keys ...api.Key) { w.commit(nil, keys) }

// Load commits a batch after which there are these objects and no others.
func (w *World) Load(yaml string) {
	w.t.Helper()
	objects := Parse(w.t, yaml)
	var gone []api.Key
	for k := range w.objects {
		if !slices.ContainsFunc(objects, func(o *api.Object) bool { return o.Key == k }) {
			gone = append(gone, k)
		}
	}
	w.commit(objects, gone)
}

// LoadFiles commits the documents of files with YAML as the source of files does: a refused one becomes Problems. Other files are left out.
func (w *World) LoadFiles(files []txtar.File) {
	var objects []*api.Object
	var problems []api.Problem
	for _, f := range files {
		if !strings.HasSuffix(f.Name, ".yaml") {
			continue
		}
		for _, d := range api.Decode(f.Name, f.Data) {
			d.Check()
			problems = append(problems, d.Problems...)
			if d.Object != nil {
				objects = append(objects, d.Object)
			}
		}
	}
	batch := w.Batch(objects...)
	batch.Problems = source.ProblemEvents(nil, problems)
	w.Commit(func(tx *store.Txn) { w.Tables.Apply(tx, batch) })
}

func (w *World) commit(objects []*api.Object, gone []api.Key) {
	b := w.Batch(objects...)
	for _, o := range objects {
		w.objects[o.Key] = o
	}
	for _, k := range gone {
		delete(w.objects, k)
		b.Events = append(b.Events, source.Event{Key: k})
	}
	var said []api.Problem
	for _, o := range w.objects {
		said = append(said, api.Unsupported(o)...)
	}
	b.Problems, w.said = source.ProblemEvents(w.said, said), said
	w.Commit(func(tx *store.Txn) { w.Tables.Apply(tx, b) })
}

// Configure replaces the mesh configuration; a Problem with it ends the test.
func (w *World) Configure(yaml string) {
	w.t.Helper()
	m, problems := api.DecodeMesh("mesh.yaml", []byte(yaml))
	if problems = append(problems, api.UnsupportedMesh("mesh.yaml", []byte(yaml), false)...); len(problems) > 0 {
		w.t.Fatal(problems)
	}
	b := w.Batch()
	b.Mesh = m
	w.Commit(func(tx *store.Txn) { w.Tables.Apply(tx, b) })
}

// ConfigureNetworks replaces the mesh networks; a Problem with them ends the test.
func (w *World) ConfigureNetworks(yaml string) {
	w.t.Helper()
	n, problems := api.DecodeNetworks("networks.yaml", []byte(yaml))
	if len(problems) > 0 {
		w.t.Fatal(problems)
	}
	b := w.Batch()
	b.Networks = n
	w.Commit(func(tx *store.Txn) { w.Tables.Apply(tx, b) })
}

// Batch is a batch of the World's source with new versions of objects.
func (w *World) Batch(objects ...*api.Object) source.Batch {
	b := source.Batch{Source: sourceName, Synced: true}
	for _, o := range objects {
		b.Events = append(b.Events, source.Event{Key: o.Key, Object: o})
	}
	return b
}

// Observe commits new versions of objects of Kubernetes as one batch. A nil value removes the object.
func (w *World) Observe(values map[api.Key]kube.Value) {
	b := w.Batch()
	for k, v := range values {
		b.Events = append(b.Events, source.Event{Key: k, Value: v})
	}
	slices.SortFunc(b.Events, func(a, b source.Event) int { return a.Key.Compare(b.Key) })
	w.Commit(func(tx *store.Txn) { w.Tables.Apply(tx, b) })
}

// Commit commits rows and, unless the World is cut, finishes everything there is to do.
func (w *World) Commit(write func(tx *store.Txn)) {
	w.Graph.Commit(write)
	if !w.cut {
		w.Settle(1000)
	}
}

// Settle finishes everything there is to do, in slices of a number of cells.
func (w *World) Settle(cells int) {
	for w.Graph.Slice(cells) {
	}
}

// Node is the node id of a sidecar, with metadata as JSON ("" for none).
func Node(t T, id, metadata string) *proxy.Proxy {
	t.Helper()
	m := &structpb.Struct{}
	if metadata != "" {
		if err := protojson.Unmarshal([]byte(metadata), m); err != nil {
			t.Fatal(err)
		}
	}
	p, err := proxy.Parse(proxy.Node{ID: id, Metadata: m})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Connect adds a proxy, watches the state of its class and returns the class.
func (w *World) Connect(p *proxy.Proxy) proxy.Class {
	w.Commit(func(tx *store.Txn) { w.Tables.Proxies.Set(tx, p.ID, p) })
	return w.Follow(p.ID)
}

// Follow watches the state of the class that a connected proxy has by now, and returns the class.
func (w *World) Follow(id string) proxy.Class {
	c, _ := w.Queries.Class.Get(w.Graph.Naive(), id)
	w.Watch(c)
	return c
}

// Watch makes the state of a class a root of the graph.
func (w *World) Watch(c proxy.Class) {
	if w.release[c] != nil {
		return
	}
	w.release[c] = w.Queries.State.Observe(c, func(s *resource.State, _ bool) { w.states[c] = s })
	w.Commit(func(*store.Txn) {})
}

// Leave ends Watch.
func (w *World) Leave(c proxy.Class) {
	if release := w.release[c]; release != nil {
		release()
		delete(w.release, c)
		delete(w.states, c)
	}
	w.Commit(func(*store.Txn) {})
}

// Stop ends all observation and frees the results computed for it. It returns the cells that are left, which are leaks.
func (w *World) Stop() (left map[string]int) {
	for _, c := range slices.Collect(maps.Keys(w.release)) {
		w.Leave(c)
	}
	w.silence()
	w.Settle(1000)
	return w.Graph.Cells()
}

// State is the published state of a watched class.
func (w *World) State(c proxy.Class) *resource.State { return w.states[c] }

// Cold is the state of a class worked out from the rows alone.
func (w *World) Cold(c proxy.Class) *resource.State {
	s, _ := w.Queries.State.Get(w.Graph.Naive(), c)
	return s
}

// Check compares all published states, and the problems, with the results of the rows alone. While first builds are
// under way their states are not published yet; a published state is right at any time.
func (w *World) Check() {
	w.t.Helper()
	if w.told {
		cold := w.Queries.Problems.Merged(w.Graph.Naive(), class.All{})
		if got, want := w.Problems(), lines(cold); !slices.Equal(got, want) {
			w.t.Errorf("problems: incremental %q, naive %q", got, want)
		}
	} else if !w.Graph.Pending() {
		w.t.Error("nothing is left to do, and the problems were not published")
	}
	if !w.Graph.Pending() {
		if err := w.Graph.CheckEdges(); err != nil {
			w.t.Error(err)
		}
	}
	for _, f := range w.Graph.Faults() {
		w.t.Errorf("a cell has a fault: %+v", f)
	}
	for c := range w.release {
		if _, published := w.states[c]; !published && !w.Graph.Pending() {
			w.t.Errorf("nothing is left to do, and the state of class %+v was not published", c)
		}
	}
	for c, got := range w.states {
		cold := w.Cold(c)
		for t := range resource.Type(resource.Types) {
			for d := range resource.Diff(cold.Layers(t), got.Layers(t)) {
				w.t.Errorf("%v %q of class %+v: incremental and naive evaluation differ", t, d.Name, c)
			}
		}
	}
}

// States are the published states of all watched classes. The map is the World's own.
func (w *World) States() map[proxy.Class]*resource.State { return w.states }
