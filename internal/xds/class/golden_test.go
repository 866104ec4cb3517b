package class_test

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// A golden file holds, in order: comment; mesh.yaml, if it is not the default; config.yaml; one or more "proxy" files (a node id, then metadata as JSON), each
// followed by "show" (lines of "TYPE name-pattern"), "names", "want" and "domains"; and at the end "problems".
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { checkGolden(t, file) })
	}
}

func checkGolden(t *testing.T, file string) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := meshtest.New(t)
	var state *resource.State
	var show []string
	for i := range a.Files {
		f := &a.Files[i]
		var got string
		switch f.Name {
		case "mesh.yaml":
			w.Configure(string(f.Data))
			continue
		case "config.yaml":
			w.Load(string(f.Data))
			continue
		case "proxy":
			id, metadata, _ := strings.Cut(string(f.Data), "\n")
			c := w.Connect(meshtest.Node(t, id, strings.TrimSpace(metadata)))
			state = w.State(c)
			judge(t, w, state)
			trace(t, w, c, state)
			continue
		case "show":
			show = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
			continue
		case "names":
			got = names(state)
		case "want":
			got = meshtest.Print(t, state, func(typ resource.Type, name string) bool {
				return slices.ContainsFunc(show, func(line string) bool { return shows(line, typ, name) })
			})
		case "domains":
			got = meshtest.Domains(t, state)
		case "problems":
			got = problems(w)
		default:
			t.Fatalf("%s: unknown section %q", file, f.Name)
		}
		if *update {
			f.Data = []byte(got)
		} else if !bytes.Equal(f.Data, []byte(got)) {
			t.Errorf("%s: %s differs; run with -update if that is meant:\n%s", file, f.Name, difference(string(f.Data), got))
		}
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// judge holds a state against everything that knows what is valid.
func judge(t *testing.T, w *meshtest.World, s *resource.State) {
	t.Helper()
	w.Check()
	meshtest.Validate(t, s)
	envoy, err := meshtest.FindEnvoy(os.Getenv("ENVOY"))
	if err != nil {
		t.Log("not shown to a real Envoy:", err)
		return
	}
	meshtest.Accept(t, envoy, t.TempDir(), s)
}

// trace finds where every resource comes from, and every virtual host: the layer that a trace names is the one that shows it.
func trace(t *testing.T, w *meshtest.World, c proxy.Class, s *resource.State) {
	t.Helper()
	for typ := range resource.Type(resource.Types) {
		for r := range s.Types[typ].All() {
			got, ok := w.Queries.Trace(w.Graph, c, typ, r.Name(), "")
			if !ok || got.Resource != r {
				t.Errorf("%v %s: traced %t to layer %q, which does not show it", typ, r.Name(), ok, got.Part)
			}
			for piece := range r.Pieces().All() {
				if unknown := piece == "allow_any" || piece == "block_all"; unknown {
					continue // for hosts that nobody declares: it is made of settings alone
				}
				if _, ok := w.Queries.Trace(w.Graph, c, typ, r.Name(), string(piece)); !ok {
					t.Errorf("%v %s: its virtual host %q is not traced", typ, r.Name(), piece)
				}
			}
		}
	}
}

func names(s *resource.State) string {
	var out strings.Builder
	for typ := range resource.Type(resource.Types) {
		for _, name := range meshtest.Names(s, typ) {
			fmt.Fprintln(&out, typ, name)
		}
	}
	return out.String()
}

func shows(line string, typ resource.Type, name string) bool {
	kind, pattern, _ := strings.Cut(line, " ")
	ok, err := path.Match(pattern, name)
	return err == nil && ok && kind == typ.String()
}

func problems(w *meshtest.World) string {
	var out strings.Builder
	for _, line := range w.Problems() {
		fmt.Fprintln(&out, line)
	}
	return out.String()
}
