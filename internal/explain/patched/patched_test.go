package patched_test

import (
	"bytes"
	"flag"
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
	meshtest.PlayFiles(t, *update, func(t *testing.T, _ []txtar.File) func(name, text string) (string, bool) {
		w := meshtest.New(t)
		var asked string
		return func(name, text string) (string, bool) {
			text = strings.TrimSpace(text)
			switch name {
			case "mesh.yaml":
				w.Apply(text)
			case "proxy":
				id, metadata, _ := strings.Cut(text, "\n")
				w.Connect(meshtest.Node(t, id, metadata))
			case "ask":
				asked = text
			case "answer":
				return answer(t, w, asked), true
			default:
				t.Fatalf("unknown section %q", name)
			}
			return "", false
		}
	})
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
