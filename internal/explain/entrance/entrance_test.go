package entrance_test

import (
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pilotmesh/pilot/internal/explain/entrance"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

// TestConversations plays the files of testdata. "mesh.yaml" are objects that are applied, "proxy" connects a gateway (a node id, then metadata
// as JSON). "ask" is a request, and "answer" the expected text about it; "gateways" and "hosts" are the expected lists.
func TestConversations(t *testing.T) {
	meshtest.PlayFiles(t, *update, func(t *testing.T, _ []txtar.File) func(name, text string) (string, bool) {
		w := meshtest.New(t)
		var asked string
		return func(name, text string) (string, bool) {
			text = strings.TrimSpace(text)
			m := entrance.Mesh{Mesh: why.Mesh{Tables: w.Tables, Graph: w.Graph, Queries: w.Queries}, Now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
			switch name {
			case "mesh.yaml":
				w.Apply(text)
			case "proxy":
				id, metadata, _ := strings.Cut(text, "\n")
				w.Queries.Class.Observe(id, func(proxy.Class, bool) {})
				w.Connect(meshtest.Node(t, id, metadata))
			case "ask":
				asked = text
			case "answer":
				q, err := entrance.Parse(asked)
				if err != nil {
					t.Fatal(err)
				}
				return printed(t, m.Ask(q).Write), true
			case "gateways":
				return printed(t, m.List().WriteGateways), true
			case "hosts":
				return printed(t, m.List().WriteHosts), true
			default:
				t.Fatalf("unknown section %q", name)
			}
			return "", false
		}
	})
}

// printed returns the text that a function writes.
func printed(t *testing.T, write func(io.Writer) error) string {
	var b strings.Builder
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestParse: a host may have a scheme, a port, a path and a query, and anything else is refused.
func TestParse(t *testing.T) {
	for text, want := range map[string]entrance.Question{
		"Shop.example.com.":                    {Host: "shop.example.com"},
		"shop.example.com:8443":                {Host: "shop.example.com", Port: 8443},
		"https://shop.example.com/cart?x=1#y":  {Host: "shop.example.com", Port: 443, Path: "/cart"},
		"http://shop.example.com":              {Host: "shop.example.com", Port: 80},
		"https://shop.example.com:8443/a/b:80": {Host: "shop.example.com", Port: 8443, Path: "/a/b:80"},
		"*.example.com/":                       {Host: "*.example.com", Path: "/"},
	} {
		if got, err := entrance.Parse(text); err != nil || got != want {
			t.Errorf("%s: %+v, error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "/cart", ":80", "a:0", "a:70000", "a:b", "a b", "user@a", "ftp://a"} {
		if got, err := entrance.Parse(text); err == nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// FuzzParse: no text makes Parse panic, and each question has a host.
func FuzzParse(f *testing.F) {
	f.Add("https://shop.example.com:8443/cart?x=1")
	f.Add("[::1]:80/")
	f.Fuzz(func(t *testing.T, text string) {
		if q, err := entrance.Parse(text); err == nil && (q.Host == "" || q.Path != "" && q.Path[0] != '/') {
			t.Errorf("%q: %+v", text, q)
		}
	})
}
