package patched_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pilotmesh/pilot/internal/explain/patched"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/meshtest"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

// TestConversations plays the files of testdata. "mesh.yaml" are objects that are applied, "proxy" connects a proxy (a node id, then metadata as
// JSON). "ask" names an EnvoyFilter, and "answer" is the expected text about it.
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no conversations", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { play(t, file) })
	}
}

func play(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := meshtest.New(t)
	var asked string
	for i := range archive.Files {
		f := &archive.Files[i]
		content := strings.TrimSpace(string(f.Data))
		switch f.Name {
		case "mesh.yaml":
			w.Apply(content)
		case "proxy":
			id, metadata, _ := strings.Cut(content, "\n")
			w.Connect(meshtest.Node(t, id, metadata))
		case "ask":
			asked = content
		case "answer":
			got := answer(t, w, asked)
			if *update {
				f.Data = []byte(got)
			} else if got != string(f.Data) {
				t.Errorf("got\n%s\nwant\n%s", got, f.Data)
			}
		default:
			t.Fatalf("%s: unknown section %q", file, f.Name)
		}
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil { //nolint:gosec // a golden file
			t.Fatal(err)
		}
	}
}

func answer(t *testing.T, w *meshtest.World, asked string) string {
	t.Helper()
	namespace, name, _ := strings.Cut(asked, "/")
	a, err := patched.Mesh{Mesh: why.Mesh{Tables: w.Tables, Graph: w.Graph, Queries: w.Queries}}.Ask(namespace, name)
	if err != nil {
		return err.Error() + "\n"
	}
	var b bytes.Buffer
	if err := a.Write(&b); err != nil {
		t.Fatal(err)
	}
	if !a.Complete() {
		b.WriteString("\nnot complete\n")
	}
	return b.String()
}
