package file_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitLimit is how long a test waits for an expected state. It is generous: the machine may be busy.
const waitLimit = 20 * time.Second

// world is a running source and the sum of its batches.
type world struct {
	t        testing.TB
	dir      string
	batches  chan source.Batch
	objects  map[api.Key]*api.Object
	values   map[api.Key]kube.Value
	last     source.Batch
	problems []api.Problem // that the source has now
	mesh     *meshconfig.MeshConfig
	networks *meshconfig.MeshNetworks
	count    int             // of batches
	events   map[api.Key]int // per object
}

// sink queues without bound, as the contract demands.
type sink struct {
	mu    sync.Mutex
	queue []source.Batch
	out   chan source.Batch
	wake  chan struct{}
}

func (s *sink) Apply(b source.Batch) {
	s.mu.Lock()
	s.queue = append(s.queue, b)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sink) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		s.mu.Lock()
		queue := s.queue
		s.queue = nil
		s.mu.Unlock()
		for _, b := range queue {
			select {
			case s.out <- b:
			case <-ctx.Done():
				return
			}
		}
	}
}

// start runs a source over a directory.
func start(t testing.TB, o file.Options) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &sink{out: make(chan source.Batch), wake: make(chan struct{}, 1)}
	w := &world{t: t, dir: o.Dir, batches: s.out, objects: map[api.Key]*api.Object{}, values: map[api.Key]kube.Value{}, events: map[api.Key]int{}}
	var wg sync.WaitGroup
	wg.Go(func() { s.run(ctx) })
	wg.Go(func() {
		if err := file.New(o).Run(ctx, s); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return w
}

// open is start with the first complete list waited for.
func open(t *testing.T, files map[string]string) *world {
	t.Helper()
	return openWith(t, file.Options{}, files)
}

func openWith(t *testing.T, o file.Options, files map[string]string) *world {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "config")
	must(t, os.MkdirAll(dir, 0o755))
	for name, text := range files {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		write(t, filepath.Join(dir, name), text)
	}
	o.Dir = dir
	w := start(t, o)
	w.until("synced", func() bool { return w.last.Synced })
	return w
}

// next takes in one batch.
func (w *world) next() source.Batch {
	w.t.Helper()
	select {
	case b := <-w.batches:
		w.count++
		w.last = b
		seen := map[api.Key]bool{}
		for _, e := range b.Events {
			if seen[e.Key] {
				w.t.Errorf("%v is twice in one batch", e.Key)
			}
			seen[e.Key] = true
			w.events[e.Key]++
			if w.value(e) {
				continue
			}
			if e.Object == nil {
				if w.objects[e.Key] == nil {
					w.t.Errorf("%v is removed but was not there", e.Key)
				}
				delete(w.objects, e.Key)
				continue
			}
			if old := w.objects[e.Key]; old != nil && old.Hash == e.Object.Hash {
				w.t.Errorf("%v comes again unchanged", e.Key)
			}
			w.objects[e.Key] = e.Object
		}
		for _, p := range b.Problems {
			at := slices.Index(w.problems, p.Problem)
			switch {
			case p.Gone == (at < 0):
				w.t.Errorf("problem %v comes or goes twice", p.Problem)
			case p.Gone:
				w.problems = slices.Delete(w.problems, at, at+1)
			default:
				w.problems = append(w.problems, p.Problem)
			}
		}
		slices.SortStableFunc(w.problems, func(a, b api.Problem) int {
			return cmp.Or(a.Position.Compare(b.Position), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason))
		})
		if b.Networks != nil {
			w.networks = b.Networks
		}
		if b.Mesh != nil {
			w.mesh = b.Mesh
		}
		return b
	case <-time.After(waitLimit):
		w.t.Fatalf("no batch came; objects: %v, problems: %v", w.names(), w.problems)
		panic("unreachable")
	}
}

// value takes in an event about an object of Kubernetes, and reports whether it is one.
func (w *world) value(e source.Event) bool {
	w.t.Helper()
	old := w.values[e.Key]
	switch {
	case e.Value != nil && old != nil && old.Same(e.Value):
		w.t.Errorf("%v comes again unchanged", e.Key)
	case e.Value != nil:
		w.values[e.Key] = e.Value
	case old != nil:
		delete(w.values, e.Key)
	default:
		return false
	}
	return true
}

// until takes in batches until a condition holds.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(waitLimit)
	for !holds() {
		if time.Now().After(deadline) {
			w.t.Fatalf("not %s; objects: %v, problems: %v", what, w.names(), w.problems)
		}
		w.next()
	}
}

// sentinel makes a change that must arrive alone: no other change was pending.
func (w *world) sentinel() {
	w.t.Helper()
	name := fmt.Sprintf("sentinel-%d", w.count)
	write(w.t, filepath.Join(w.dir, name+".yaml"), entry(name, "198.51.100.1"))
	b := w.next()
	if len(b.Events) != 1 || b.Events[0].Key.Name != name {
		w.t.Fatalf("something came before the sentinel: %v, problems %v", b.Events, b.Problems)
	}
	must(w.t, os.Remove(filepath.Join(w.dir, name+".yaml")))
	w.until("the sentinel is gone", func() bool { return w.objects[key(name)] == nil })
}

func (w *world) names() []string {
	var names []string
	for k := range w.objects {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	return names
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// has reports whether exactly these objects exist.
func (w *world) has(names ...string) func() bool {
	slices.Sort(names)
	return func() bool { return slices.Equal(w.names(), names) }
}

// address reports whether an object has an address.
func (w *world) address(name, address string) func() bool {
	return func() bool {
		o := w.objects[key(name)]
		return o != nil && o.Spec.(*networking.ServiceEntry).Endpoints[0].Address == address
	}
}

// problem reports whether there is a problem with that text.
func (w *world) problem(text string) func() bool {
	return func() bool {
		return slices.ContainsFunc(w.problems, func(p api.Problem) bool { return strings.Contains(p.String(), text) })
	}
}

func (w *world) healthy() bool { return len(w.problems) == 0 }

func key(name string) api.Key { return api.Key{Kind: "ServiceEntry", Namespace: "default", Name: name} }

func entry(name, address string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s}
spec:
  hosts: [%s.example.com]
  ports: [{number: 80, name: http, protocol: HTTP}]
  location: MESH_INTERNAL
  resolution: STATIC
  endpoints: [{address: %s}]
`, name, name, address)
}

func entries(names ...string) string {
	var all []string
	for _, n := range names {
		all = append(all, entry(n, "192.0.2.1"))
	}
	return strings.Join(all, "---\n")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

// replace writes a file atomically.
func replace(t testing.TB, path, text string) {
	t.Helper()
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	write(t, tmp, text)
	must(t, os.Rename(tmp, path))
}

func TestFirstList(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "team", "deep"), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, ".git"), 0o755))
	write(t, filepath.Join(dir, "a.yaml"), entries("a", "b"))
	write(t, filepath.Join(dir, "team", "c.yml"), entries("c"))
	write(t, filepath.Join(dir, "team", "deep", "d.json"), `{"apiVersion": "networking.istio.io/v1", "kind": "Sidecar",
	"metadata": {"name": "d"}, "spec": {"egress": [{"hosts": ["./*"]}]}}`)
	write(t, filepath.Join(dir, "README.md"), "# not configuration")
	write(t, filepath.Join(dir, ".git", "e.yaml"), entries("e"))
	write(t, filepath.Join(dir, ".hidden.yaml"), entries("f"))
	w := start(t, file.Options{Dir: dir})
	w.until("synced", func() bool { return w.last.Synced })
	if !w.has("a", "b", "c", "d")() || !w.healthy() {
		t.Fatalf("objects %v, problems %v", w.names(), w.problems)
	}
	if w.mesh != nil {
		t.Error("a mesh configuration without a file")
	}
	if got := w.objects[key("b")].Position; got != (api.Position{File: filepath.Join(dir, "a.yaml"), Line: 11}) {
		t.Errorf("b is at %v", got)
	}
}

func TestEmptyDirectory(t *testing.T) {
	w := open(t, nil)
	if !w.has()() || !w.healthy() {
		t.Fatalf("objects %v, problems %v", w.names(), w.problems)
	}
	write(t, w.path("a.yaml"), entries("a"))
	w.until("a is there", w.has("a"))
}

func TestEdits(t *testing.T) {
	w := open(t, map[string]string{"a.yaml": entries("a", "b"), "c.yaml": entries("c")})
	for i, edit := range []func(testing.TB, string, string){write, replace, write} {
		address := fmt.Sprintf("192.0.2.%d", 10+i)
		edit(t, w.path("a.yaml"), entry("a", address)+"---\n"+entry("b", "192.0.2.1"))
		b := w.next()
		if len(b.Events) != 1 || !w.address("a", address)() {
			t.Fatalf("edit %d: %v", i, b.Events)
		}
	}
	write(t, w.path("a.yaml"), entries("b"))
	w.until("a is gone", w.has("b", "c"))
	must(t, os.Remove(w.path("c.yaml")))
	w.until("c is gone", w.has("b"))
	write(t, w.path("b.yaml"), entries("d"))
	w.until("d is there", w.has("b", "d"))
	must(t, os.Rename(w.path("b.yaml"), w.path("b.txt")))
	w.until("d is gone", w.has("b"))
	must(t, os.Rename(w.path("b.txt"), w.path("e.yaml")))
	w.until("d is back", w.has("b", "d"))
}

// TestNothingSaid makes changes of files that do not change their objects.
func TestNothingSaid(t *testing.T) {
	text := entries("a", "b")
	w := open(t, map[string]string{"a.yaml": text, "c.yaml": entries("c")})
	for _, edit := range []func(){
		func() { must(t, os.Chtimes(w.path("a.yaml"), time.Now(), time.Now())) },
		func() { must(t, os.Chmod(w.path("a.yaml"), 0o600)) },
		func() { write(t, w.path("a.yaml"), text) },
		func() { replace(t, w.path("a.yaml"), text) },
		func() { write(t, w.path("a.yaml"), "# a comment\n"+text) },
		func() { write(t, w.path("a.yaml"), entries("b", "a")) },
		func() {
			write(t, w.path("a.yaml"), strings.ReplaceAll(text, "metadata: {", "metadata: {annotations: {note: x}, "))
		},
		func() { write(t, w.path("note.txt"), "x") },
		func() { write(t, w.path(".a.yaml.swp"), "x") },
		func() { must(t, os.Mkdir(w.path("sub"), 0o755)) },
		func() { must(t, os.Rename(w.path("a.yaml"), w.path("sub/z.yaml"))) },
	} {
		edit()
		w.sentinel()
	}
}

// TestMovedObject moves objects from file to file: they are never removed.
func TestMovedObject(t *testing.T) {
	w := open(t, map[string]string{"a.yaml": entries("a", "b")})
	for i := range 10 {
		write(t, w.path(fmt.Sprintf("f%d.yaml", i)), entries("b"))
		write(t, w.path("a.yaml"), entries("a"))
		must(t, os.Rename(w.path("a.yaml"), w.path("z.yaml")))
		w.until("settled", w.healthy)
		must(t, os.Rename(w.path("z.yaml"), w.path("a.yaml")))
		must(t, os.Rename(w.path(fmt.Sprintf("f%d.yaml", i)), w.path("b.yaml")))
		write(t, w.path("mark.yaml"), entries(fmt.Sprintf("mark-%d", i)))
		w.until("marked", func() bool { return w.objects[key(fmt.Sprintf("mark-%d", i))] != nil })
	}
	if w.events[key("a")] != 1 || w.events[key("b")] != 1 {
		t.Errorf("moving objects made events: %v", w.events)
	}
}

func TestBrokenDocuments(t *testing.T) {
	w := open(t, map[string]string{"a.yaml": entries("a", "b", "c"), "d.yaml": entries("d")})
	bad := strings.Replace(entry("b", "192.0.2.9"), "number: 80", "number: eighty", 1)
	write(t, w.path("a.yaml"), entry("a", "192.0.2.2")+"---\n"+bad+"---\n"+entries("c"))
	w.until("a is edited", w.address("a", "192.0.2.2"))
	if !w.address("b", "192.0.2.1")() || !w.problem("a.yaml:16: error: ServiceEntry default/b: spec.ports[0].number: must be a whole number")() {
		t.Fatalf("objects %v, problems %v", w.objects, w.problems)
	}
	// Refused by validation, not by decoding.
	write(t, w.path("a.yaml"), entry("a", "192.0.2.2")+"---\n"+strings.Replace(entry("b", "192.0.2.9"), "number: 80", "number: 80000", 1)+"---\n"+entries("c"))
	w.until("validation speaks", w.problem("not 80000"))
	if !w.address("b", "192.0.2.1")() {
		t.Fatal("a refused version is in use")
	}
	// A syntax error names no object: all objects stay, except objects that are now in another file.
	write(t, w.path("a.yaml"), entry("a", "192.0.2.3")+"---\nspec: [\n---\n"+entries("c"))
	w.until("a is edited", w.address("a", "192.0.2.3"))
	if !w.has("a", "b", "c", "d")() || !w.problem("not well-formed YAML")() {
		t.Fatalf("objects %v, problems %v", w.names(), w.problems)
	}
	write(t, w.path("b.yaml"), entry("b", "192.0.2.7"))
	w.until("b is taken from elsewhere", w.address("b", "192.0.2.7"))
	must(t, os.Remove(w.path("b.yaml")))
	w.until("b is what its broken file said last", w.address("b", "192.0.2.1"))
	// Healed: objects that are no longer in the file are removed.
	write(t, w.path("a.yaml"), entries("a", "c"))
	w.until("healed", func() bool { return w.has("a", "c", "d")() && w.healthy() })
	// Broken from the start: there is nothing to keep.
	write(t, w.path("e.yaml"), strings.Replace(entry("e", "x"), "name: e", "name: E", 1)+"---\n"+entries("f"))
	w.until("the good half is there", w.has("a", "c", "d", "f"))
	must(t, os.Remove(w.path("e.yaml")))
	w.until("gone with its problems", func() bool { return w.has("a", "c", "d")() && w.healthy() })
}

// TestBrokenAndMoved moves a document to another file and breaks it on the way.
func TestBrokenAndMoved(t *testing.T) {
	w := open(t, map[string]string{"a.yaml": entries("a"), "b.yaml": entries("b")})
	must(t, os.Rename(w.path("a.yaml"), w.path("c.yaml")))
	write(t, w.path("c.yaml"), strings.Replace(entries("a"), "resolution: STATIC", "resolution: STATISTIC", 1))
	w.until("the problem is told", w.problem("c.yaml:8"))
	w.sentinel()
	if !w.address("a", "192.0.2.1")() {
		t.Fatalf("objects %v", w.names())
	}
}

func TestDuplicates(t *testing.T) {
	w := open(t, map[string]string{"b.yaml": entry("a", "192.0.2.2"), "c.yaml": entry("a", "192.0.2.3") + "---\n" + entry("a", "192.0.2.4")})
	if !w.address("a", "192.0.2.2")() || len(w.problems) != 2 {
		t.Fatalf("objects %v, problems %v", w.objects, w.problems)
	}
	for i, line := range []string{"c.yaml:1: error: ServiceEntry default/a: is also defined at ", "c.yaml:11: error: ServiceEntry default/a: is also defined at "} {
		if got := w.problems[i].String(); !strings.Contains(got, line+w.path("b.yaml:1")) {
			t.Errorf("problem %d: %s", i, got)
		}
	}
	write(t, w.path("a.yaml"), entry("a", "192.0.2.1"))
	w.until("the first file counts", w.address("a", "192.0.2.1"))
	must(t, os.Remove(w.path("a.yaml")))
	must(t, os.Remove(w.path("b.yaml")))
	w.until("the next one counts", w.address("a", "192.0.2.3"))
	// A broken document before a good one that is in use does not replace it.
	write(t, w.path("a.yaml"), strings.Replace(entry("a", "192.0.2.9"), "hosts:", "hots:", 1))
	w.until("the problem is told", w.problem("did you mean hosts?"))
	write(t, w.path("c.yaml"), entry("a", "192.0.2.5"))
	w.until("the good one is followed", w.address("a", "192.0.2.5"))
}

func TestHalfWrittenFile(t *testing.T) {
	w := openWith(t, file.Options{MaxWait: time.Second}, map[string]string{"a.yaml": entries("a", "b"), "c.yaml": entries("c")})
	// An editor that cuts the file and takes its time.
	f, err := os.OpenFile(w.path("a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	write(t, w.path("c.yaml"), entry("c", "192.0.2.7"))
	w.until("c is edited", w.address("c", "192.0.2.7"))
	if !w.has("a", "b", "c")() {
		t.Fatalf("a cut file lost its objects: %v", w.names())
	}
	_, err = f.WriteString(entry("a", "192.0.2.8") + "---\n" + entries("b"))
	must(t, err)
	must(t, f.Close())
	b := w.next()
	if len(b.Events) != 1 || !w.address("a", "192.0.2.8")() {
		t.Fatalf("events %v", b.Events)
	}
	// A file that stays empty is intended.
	must(t, os.Truncate(w.path("a.yaml"), 0))
	w.until("emptied", w.has("c"))
}

// TestSlowWriter writes a file in many steps, longer than rounds last: it is not read before its end.
func TestSlowWriter(t *testing.T) {
	w := openWith(t, file.Options{Quiet: 100 * time.Millisecond, MaxWait: 120 * time.Millisecond}, map[string]string{"a.yaml": entries("a", "b")})
	f, err := os.OpenFile(w.path("a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	text := entries("a", "b", "c")
	for len(text) > 0 {
		n := min(8, len(text))
		_, err := f.WriteString(text[:n])
		must(t, err)
		text = text[n:]
		<-tick.C
	}
	must(t, f.Close())
	w.until("c is there", w.has("a", "b", "c"))
	for _, p := range w.problems {
		t.Error(p)
	}
}

// TestMassChange replaces many files one after another, as git does. The quiet time is longer than a busy machine may
// halt the test between the removal of a file and its writing.
func TestMassChange(t *testing.T) {
	const n = 200
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("f%03d.yaml", i)] = entry(fmt.Sprintf("s%03d", i), "192.0.2.1")
	}
	w := openWith(t, file.Options{Quiet: 100 * time.Millisecond, MaxWait: time.Second}, files)
	before := w.count
	for _, name := range slices.Sorted(maps.Keys(files)) {
		must(t, os.Remove(w.path(name)))
		write(t, w.path(name), strings.Replace(files[name], "192.0.2.1", "192.0.2.2", 1))
	}
	w.until("all are changed", func() bool {
		for i := range n {
			if name := fmt.Sprintf("s%03d", i); !w.address(name, "192.0.2.2")() && !w.address(name, "192.0.2.1")() {
				t.Fatalf("%s was gone in between", name)
			}
		}
		for i := range n {
			if !w.address(fmt.Sprintf("s%03d", i), "192.0.2.2")() {
				return false
			}
		}
		return true
	})
	if got := w.count - before; got > 20 {
		t.Errorf("%d batches for one change", got)
	} else {
		t.Logf("%d batches", got)
	}
}
