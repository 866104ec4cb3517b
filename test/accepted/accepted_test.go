package accepted

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/api"
	realenvoy "github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/repo"
)

// setting returns the value of a flag of package rapid.
func setting(name string) uint64 {
	n, _ := strconv.ParseUint(flag.Lookup(name).Value.String(), 10, 64)
	return n
}

var _ = rapid.Check // its import defines the flags

// mesh draws the documents of a mesh, and keeps what Pilot accepts.
func (d draw) parts(t reporter) (parts []*part) {
	var docs []tree
	kinds := api.Kinds()
	for i := range 2 + d.IntN(7) {
		k := pick(d, kinds)
		if k.Name == api.KindEnvoyFilter {
			continue
		}
		docs = append(docs, d.document(k, fmt.Sprintf("n%d", i)))
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

// TestEnvoyLoadsWhatIsAccepted draws meshes.
func TestEnvoyLoadsWhatIsAccepted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("Envoys listen on all ports that a mesh names, in network namespaces, which need root")
	}
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	binary, _, err := realenvoy.Find(context.Background(), root)
	if err != nil {
		t.Skip(err)
	}
	w := newWorld(t, binary)
	envoys := w.start(t)
	if bad := w.plane.try(envoys, nil); len(bad) > 0 {
		t.Fatalf("without drawn objects: %+v", bad)
	}
	first, known := setting("rapid.seed"), map[string]bool{}
	begin := time.Now()
	for seed := first; seed < first+setting("rapid.checks"); seed++ {
		parts := newDraw(seed).parts(t)
		if seed%20 == 0 {
			fmt.Fprintln(os.Stderr, seed, time.Since(begin))
		}
		again := func(parts []*part) []failure {
			found := w.plane.try(envoys, parts)
			for _, f := range found {
				if f.fatal {
					for _, e := range envoys {
						e.process.Kill()
					}
					envoys = w.start(t)
					break
				}
			}
			return found
		}
		for _, f := range again(parts) {
			if known[f.kind] {
				continue
			}
			known[f.kind] = true
			fmt.Fprintf(os.Stderr, "mesh %d: %s: %.1500s\n%s", seed, f.kind, f.text, show(shrink(t, parts, f.kind, again)))
			t.Errorf("mesh %d: %s", seed, f.kind)
		}
	}
	t.Logf("%v", time.Since(begin))
}
