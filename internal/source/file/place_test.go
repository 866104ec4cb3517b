package file

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
)

// TestPlace: a problem gets the place of its field in the file as it is now, if the document of its object is valid there.
func TestPlace(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	const route = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: r, namespace: shop}\nspec:\n  hosts: [a.example]\n  http:\n  - route:\n    - destination:\n        host: b.example\n"
	const list = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: networking.istio.io/v1\n  kind: VirtualService\n  metadata: {name: r, namespace: shop}\n  spec:\n    hosts: [a.example]\n    http:\n    - route: [{destination: {host: b.example}}]\n"
	files := map[string]string{
		"one.yaml": route, "moved.yaml": "# a comment\n\n" + route, "list.yaml": list,
		"second.yaml":  "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: other, namespace: r}\nspec: {hosts: [x.example], http: [{route: [{destination: {host: y}}]}]}\n---\n" + route,
		"refused.yaml": route + "  wrong: true\n", "absent.yaml": "{}\n",
		"service.yaml": "# moved\napiVersion: v1\nkind: Service\nmetadata: {name: r, namespace: shop}\nspec:\n  ports: [{port: 80}]\n",
		"r.json":       `{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"r","namespace":"shop"},` + "\n" + `"spec":{"hosts":["a.example"],"http":[{"route":[{"destination":{"host":"b.example"}}]}]}}`,
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "one.yaml"), []byte(route), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(Options{Dir: dir})
	for _, c := range []struct {
		path, field  string
		line, column int
	}{
		{filepath.Join(dir, "one.yaml"), "spec.http[0].route[0].destination.host", 9, 9},
		{filepath.Join(dir, "one.yaml"), "spec.http[0].route[0].destination.subset", 8, 7}, // missing: the nearest field around it
		{filepath.Join(dir, "one.yaml"), "spec.hosts[0]", 5, 11},
		{filepath.Join(dir, "moved.yaml"), "spec.hosts[0]", 7, 11},
		{filepath.Join(dir, "second.yaml"), "spec.hosts[0]", 10, 11},
		{filepath.Join(dir, "list.yaml"), "spec.hosts[0]", 8, 13},
		{filepath.Join(dir, "r.json"), "spec.hosts[0]", 2, 0},
		{filepath.Join(dir, "refused.yaml"), "spec.hosts[0]", 77, 0},
		{filepath.Join(dir, "absent.yaml"), "spec.hosts[0]", 77, 0},
		{filepath.Join(dir, "no-such-file.yaml"), "spec.hosts[0]", 77, 0},
		{filepath.Join(outside, "one.yaml"), "spec.hosts[0]", 77, 0},
		{filepath.Join(dir, "..", filepath.Base(outside), "one.yaml"), "spec.hosts[0]", 77, 0},
	} {
		list := []api.Problem{{Object: api.Key{Kind: "VirtualService", Namespace: "shop", Name: "r"}, Position: api.Position{File: c.path, Line: 77}, Field: c.field}}
		s.Place(list)
		if got, want := list[0].Position, (api.Position{File: c.path, Line: c.line, Column: c.column}); got != want {
			t.Errorf("%s of %s is at %+v, want %+v", c.field, c.path, got, want)
		}
	}
	services := []api.Problem{{Object: api.Key{Kind: "Service", Namespace: "shop", Name: "r", Cluster: "east"}, Position: api.Position{File: filepath.Join(dir, "service.yaml"), Line: 77}}}
	if s.Place(services); services[0].Position.Line != 2 {
		t.Errorf("the Service is at line %d, want 2", services[0].Position.Line)
	}
}

// TestPlaceOfDuplicate: of two documents of one object in a file, the one at the line of the problem counts.
func TestPlaceOfDuplicate(t *testing.T) {
	const doc = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: r, namespace: shop}\nspec: {hosts: [a.example], http: [{route: [{destination: {host: y}}]}]}\n"
	path := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(path, []byte(doc+"---\n"+doc), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(Options{Dir: filepath.Dir(path)})
	for line, want := range map[int]int{1: 4, 4: 4, 6: 9, 7: 9, 77: 9} {
		list := []api.Problem{{Object: api.Key{Kind: "VirtualService", Namespace: "shop", Name: "r"}, Position: api.Position{File: path, Line: line}, Field: "spec.hosts[0]"}}
		s.Place(list)
		if got := list[0].Position.Line; got != want {
			t.Errorf("the problem at line %d is at line %d, want %d", line, got, want)
		}
	}
}
