package ingresses_test

import (
	"encoding/json"
	"flag"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pilotmesh/pilot/internal/explain/ingresses"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

// TestConversations plays the files of testdata. "services.yaml" and "mesh.yaml" are objects, loaded together, "mesh settings" the settings of the
// mesh, and "proxy" connects a gateway (a node id, then metadata as JSON). "ingress" is a host, or empty for all, and "served" the expected
// answer.
func TestConversations(t *testing.T) {
	meshtest.PlayFiles(t, *update, func(t *testing.T, all []txtar.File) func(name, text string) (string, bool) {
		w := meshtest.New(t)
		w.LoadFiles(all)
		var host string
		return func(name, text string) (string, bool) {
			text = strings.TrimSpace(text)
			switch name {
			case "services.yaml", "mesh.yaml":
			case "mesh settings":
				w.Configure(text)
			case "proxy":
				id, metadata, _ := strings.Cut(text, "\n")
				w.Queries.Class.Observe(id, func(proxy.Class, bool) {})
				w.Connect(meshtest.Node(t, id, metadata))
			case "ingress":
				host = text
			case "served":
				return served(t, w, host), true
			default:
				t.Fatalf("unknown section %q", name)
			}
			return "", false
		}
	})
}

// served asks, and returns the text of the answer. The answer goes over JSON, as it does to pilotctl.
func served(t *testing.T, w *meshtest.World, host string) string {
	cells := w.Graph.Cells()
	a := ingresses.Ask(why.Mesh{Tables: w.Tables, Graph: w.Graph, Queries: w.Queries}, host)
	a.Complete()
	if len(w.Graph.Cells()) != len(cells) {
		t.Errorf("%s: the question left cells behind", host)
	}
	body, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var again ingresses.Answer
	if err := json.Unmarshal(body, &again); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := again.Write(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}
