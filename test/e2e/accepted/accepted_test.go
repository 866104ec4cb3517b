package accepted

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
	realenvoy "github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/netns"
	"github.com/pilotmesh/pilot/test/repo"
)

// setting returns the value of a flag of package rapid.
func setting(name string) uint64 {
	n, _ := strconv.ParseUint(flag.Lookup(name).Value.String(), 10, 64)
	return n
}

var _ = rapid.Check // its import defines the flags

// parts draws the documents of a mesh, and keeps what Pilot accepts.
func (d draw) parts(t reporter) (parts []*part) {
	var docs []tree
	kinds := api.Kinds()
	for i := range 2 + d.IntN(7) {
		k := pick(d, kinds)
		if k.Name == api.KindWasmPlugin { // agents fetch the modules, and there are none here
			continue
		}
		if k.Name != api.KindEnvoyFilter || d.chance(30) { // the fewer meshes have one, the more is judged
			docs = append(docs, d.document(k, fmt.Sprintf("n%d", i)))
		}
	}
	if d.chance(30) {
		docs = append(docs, d.service()...)
	}
	if d.chance(70) {
		docs = append(docs, d.mesh())
	}
	for _, doc := range docs {
		if p, ok := accept(t, doc); ok {
			parts = append(parts, p)
		}
	}
	return parts
}

// bed is the control plane of a test with its Envoys.
type bed struct {
	*testing.T
	world  *world
	envoys []*envoy
	// ports are those to which the last mesh redirects traffic.
	ports [2]int32
}

func newBed(t *testing.T) *bed {
	t.Helper()
	if ns, err := netns.New(); err != nil {
		t.Skipf("Envoys listen on all ports that a mesh names, in network namespaces, which need root: %v", err)
	} else {
		ns.Close()
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("no ip, which makes the loopback device of a network namespace usable: install iproute2")
	}
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	binary, _, err := realenvoy.Find(context.Background(), root)
	if err != nil {
		t.Skip(err)
	}
	b := &bed{T: t, world: newWorld(t, binary)}
	b.envoys = b.world.start(t)
	if bad := b.load(nil); len(bad) > 0 {
		t.Fatalf("without drawn objects: %+v", bad)
	}
	return b
}

// load replaces the mesh, and returns its failures. Envoys that have ended are started again.
func (b *bed) load(parts []*part) []failure {
	found := b.world.plane.try(b.envoys, parts)
	if slices.ContainsFunc(found, func(f failure) bool { return f.fatal }) {
		b.restart()
	}
	return found
}

// restart starts other Envoys.
func (b *bed) restart() {
	for _, e := range b.envoys {
		e.process.Kill()
	}
	b.envoys = b.world.start(b.T)
}

// loadMoved replaces the mesh as load does. If the ports to which traffic is redirected are others than before, an Envoy may refuse a service's
// listener at the port that its own listener leaves (doc/differences.md): then only what Envoys without a past refuse is a failure.
func (b *bed) loadMoved(parts []*part) []failure {
	ports := portsOf(parts)
	moved := ports != b.ports
	b.ports = ports
	found := b.load(parts)
	if moved && slices.ContainsFunc(found, func(f failure) bool { return strings.Contains(f.text, "has duplicate address") }) {
		b.restart()
		found = b.load(parts)
	}
	return found
}

// portsOf returns the ports to which traffic is redirected.
func portsOf(parts []*part) (ports [2]int32) {
	for _, p := range parts {
		if p.mesh != nil {
			ports = [2]int32{p.mesh.GetProxyListenPort(), p.mesh.GetProxyInboundListenPort()}
		}
	}
	return ports
}

// within is the time for meshes, unless their number is given.
const within = 30 * time.Second

// TestEnvoyLoadsWhatIsAccepted draws meshes. A failure of one kind is reported once.
func TestEnvoyLoadsWhatIsAccepted(t *testing.T) {
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	b := newBed(t)
	end := time.Now().Add(within)
	first, known := setting("rapid.seed"), map[string]bool{}
	for seed := first; seed < first+setting("rapid.checks") && (asked || time.Now().Before(end)); seed++ {
		parts := newDraw(seed).parts(t)
		patched := slices.ContainsFunc(parts, func(p *part) bool { return p.kind == api.KindEnvoyFilter })
		for _, f := range b.loadMoved(parts) {
			if known[f.kind] || patched && f.byEnvoy { // only Envoy can judge some patches
				continue
			}
			known[f.kind] = true
			t.Errorf("mesh %d: %.200s", seed, f.kind) // now, because the next step takes time
			t.Logf("mesh %d: %.1500s\n%s", seed, f.text, show(shrink(t, parts, f.kind, b.loadMoved)))
		}
	}
}

// TestFound loads the meshes that an Envoy once rejected. A file begins with the path of a field if Pilot refuses that field now.
func TestFound(t *testing.T) {
	files, err := filepath.Glob("testdata/found/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	b := newBed(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			first, _, _ := strings.Cut(string(text), "\n")
			field, refused := strings.CutPrefix(first, "# refused: ")
			var parts []*part
			for one := range strings.SplitSeq(string(text), "\n---\n") {
				var doc tree
				if err := yaml.Unmarshal([]byte(one), &doc); err != nil {
					t.Fatal(err)
				}
				p, problems := read(t, doc)
				if refused {
					if !slices.ContainsFunc(problems, func(p api.Problem) bool { return p.Severity == api.Error && p.Field == field }) {
						t.Errorf("the field %s is not refused: %v", field, problems)
					}
					return
				}
				if p == nil {
					t.Fatalf("refused: %v", problems)
				}
				parts = append(parts, p)
			}
			for _, f := range b.load(parts) {
				t.Errorf("%s: %s", f.kind, f.text)
			}
		})
	}
}
