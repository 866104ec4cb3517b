package kube_test

import (
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/types/known/structpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/kube"
	"github.com/pilotmesh/pilot/internal/state"
)

// different are the cases in which a proxy receives other configuration than from Istio, with the reason. Deliberate differences
// are listed in doc/differences.md. A case in this list that passes is an error.
var different = map[string]string{
	"entry-same-host":        "a Service keeps its address as a name beside a ServiceEntry, and the ServiceEntry that remains does not expect the identities of its pods",
	"pod-node-late":          "a node counts when it comes, and not when its pods or slices are written later",
	"pod-removed-first":      "the endpoint of a removed pod goes with it",
	"proxy-external-name":    "a service of type ExternalName selects no pods",
	"slice-no-service-label": "an endpoint slice that changes its service belongs to the new one only",
}

// order is the order in which objects are applied.
type order struct {
	name string
	// live applies them one by one to a running source. reversed begins with the last one. repeated announces each event of a running
	// source again, which must have no effect.
	live, reversed, repeated bool
}

// TestAnswers applies objects to an API server, connects proxies, and compares their configuration with the one from Istio: the
// facts that follow from the objects, without details that an implementation may choose freely. The objects exist before the source
// starts, in the order of the file or the other way round, or come one by one later, once or again and again; the result must be the same.
//
// Each case is a file in testdata/answers: a title, and sections that are processed in order. mesh.yaml is the mesh configuration,
// apply has objects, delete has lines of a kind and a name, proxy is a node id and its metadata, and "want NAME" are the facts of
// the proxy of this name; see factsOf.
func TestAnswers(t *testing.T) {
	files, err := filepath.Glob("testdata/answers/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	orders := []order{{name: "listed"}, {name: "reversed", reversed: true}, {name: "one by one", live: true}, {name: "repeated", live: true, repeated: true}}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		why, listed := different[name]
		differs := false
		for _, o := range orders {
			t.Run(name+"/"+o.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					diff := play(t, archive, o)
					differs = differs || diff != ""
					if diff != "" && !listed {
						t.Error(diff)
					}
				})
			})
		}
		if listed && !differs {
			t.Errorf("%s passes now; remove it from the list of differences: %s", name, why)
		}
	}
}

// batches collects the batches of a source.
type batches struct {
	mu  sync.Mutex
	all []source.Batch
}

// Apply implements source.Sink.
func (b *batches) Apply(one source.Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, one)
}

func (b *batches) take() []source.Batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.all
	b.all = nil
	return all
}

// player processes the sections of a case.
type player struct {
	t       *testing.T
	order   order
	server  *apiServer
	world   *meshtest.World
	mesh    *meshconfig.MeshConfig
	batches batches
	started bool
	// accounts are the accounts of Services that are rows already, as in the loop.
	accounts omap.Map[omap.Name, state.Accounts]
	proxies  map[string]string // name -> node id
	diff     strings.Builder
}

// play processes a case and returns how its facts differ.
func play(t *testing.T, archive *txtar.Archive, o order) string {
	p := &player{t: t, order: o, server: newAPIServer(), world: meshtest.New(t), proxies: map[string]string{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	start := func() {
		if p.started {
			return
		}
		p.started = true
		s, err := kube.New(kube.Options{
			Config:  &rest.Config{Host: "http://cluster.test", Transport: p.server},
			Cluster: "Kubernetes", Configuration: true, Mesh: p.mesh,
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- s.Run(ctx, &p.batches) }()
		synctest.Wait()
	}
	for _, f := range archive.Files {
		if f.Name == "proxy" || o.live && f.Name == "apply" {
			start()
		}
		p.section(f.Name, string(f.Data))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return p.diff.String()
}

func (p *player) section(name, text string) {
	p.t.Helper()
	switch what, of, _ := strings.Cut(name, " "); what {
	case "mesh.yaml":
		p.configure(text)
	case "apply":
		p.apply(text)
	case "delete":
		for line := range strings.Lines(text) {
			kind, object, _ := strings.Cut(strings.TrimSpace(line), " ")
			removed := p.server.remove(kind, object)
			if removed == nil {
				p.t.Fatalf("there is no %s %s", kind, object)
			}
			p.settle()
			if p.order.repeated {
				p.repeat("DELETED", removed)
			}
		}
	case "proxy":
		p.connect(text)
	case "want":
		p.compare(of, text)
	default:
		p.t.Fatalf("section %q is unknown", name)
	}
}

func (p *player) configure(text string) {
	m, problems := api.DecodeMesh("mesh.yaml", []byte(text))
	if len(problems) > 0 {
		p.t.Fatal(problems)
	}
	p.mesh = m
	p.world.Commit(func(tx *store.Txn) { p.world.Tables.Apply(tx, source.Batch{Source: "mesh", Mesh: m}) })
}

func (p *player) apply(text string) {
	var objects []*unstructured.Unstructured
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		o := map[string]any{}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			p.t.Fatal(err)
		}
		objects = append(objects, &unstructured.Unstructured{Object: o})
	}
	if p.order.reversed {
		slices.Reverse(objects)
	}
	for _, o := range objects {
		p.server.put(o)
		p.settle()
		if p.order.repeated {
			p.repeat("ADDED", o)
			p.repeat("MODIFIED", o)
		}
	}
}

// repeat announces an object once more, and wants the source to pass on nothing.
func (p *player) repeat(event string, o *unstructured.Unstructured) {
	p.server.again(event, o)
	synctest.Wait()
	for _, b := range p.batches.take() {
		if len(b.Events) > 0 {
			p.t.Errorf("%s of %s again leads to events %v", event, o.GetName(), b.Events)
		}
	}
}

// settle takes in the batches of the source once it is idle.
func (p *player) settle() {
	if !p.started {
		return
	}
	synctest.Wait()
	all := p.batches.take()
	p.world.Commit(func(tx *store.Txn) {
		for _, b := range all {
			p.world.Tables.Apply(tx, b)
		}
	})
	old := p.accounts
	p.accounts = p.world.Queries.Services.Accounts.Get(p.world.Graph.Naive(), struct{}{})
	if write := p.world.Tables.RememberAccounts(old, p.accounts); write != nil {
		p.world.Commit(write)
	}
}

func (p *player) connect(text string) {
	id, metadata, _ := strings.Cut(text, "\n")
	m := map[string]any{}
	if err := json.Unmarshal([]byte(metadata), &m); err != nil {
		p.t.Fatal(err)
	}
	at, _ := m["LOCALITY"].(string)
	fields, err := structpb.NewStruct(m)
	if err != nil {
		p.t.Fatal(err)
	}
	node, err := proxy.Parse(proxy.Node{ID: id, Metadata: fields, Locality: mesh.ParseLocality(at)})
	if err != nil {
		p.t.Fatal(err)
	}
	p.settle()
	p.world.Connect(node)
	p.proxies[proxy.NameOf(id)] = id
}

// compare notes the missing and the unexpected facts of a proxy.
func (p *player) compare(name, want string) {
	p.settle()
	id, ok := p.proxies[name]
	if !ok {
		p.t.Fatalf("no proxy has the name %s", name)
	}
	class := p.world.Follow(id)
	p.world.Check()
	got := factsOf(p.t, p.world.State(class))
	wanted := map[string]bool{}
	for line := range strings.Lines(want) {
		wanted[strings.TrimSpace(line)] = true
	}
	for _, fact := range slices.Sorted(maps.Keys(wanted)) {
		if !got[fact] {
			p.diff.WriteString(name + " has not: " + fact + "\n")
		}
	}
	for _, fact := range slices.Sorted(maps.Keys(got)) {
		if !wanted[fact] {
			p.diff.WriteString(name + " has: " + fact + "\n")
		}
	}
}
