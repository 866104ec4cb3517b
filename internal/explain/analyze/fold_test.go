package analyze_test

import (
	"slices"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/explain/analyze"
)

// TestFold: problems with one reason are one, which names the other objects. Another reason, code or level, no object, the same
// object again, or a field to be corrected, is another problem.
func TestFold(t *testing.T) {
	p := func(name, reason string, s api.Severity) api.Problem {
		return api.Problem{Object: api.Key{Kind: "Gateway", Namespace: "shop", Name: name}, Severity: s, Code: "selector-no-workload", Reason: reason}
	}
	file := api.Problem{Position: api.Position{File: "a"}, Severity: api.Info, Code: "file-no-object", Reason: "none"}
	other := file
	other.Position.File = "b"
	field, field2 := p("a", "unknown", api.Error), p("b", "unknown", api.Error)
	field.Code, field2.Code = "field-unknown", "field-unknown"
	got := texts(analyze.Fold([]api.Problem{
		p("a", "x", api.Warning), p("b", "x", api.Warning), p("c", "y", api.Warning), p("d", "x", api.Error), p("e", "x", api.Warning),
		p("f", "x", api.Warning), p("g", "x", api.Warning), file, other, p("h", "y", api.Warning), p("a", "x", api.Warning), field, field2,
	}))
	if want := []string{
		"warning: Gateway shop/a: x; the same for Gateway shop/b, Gateway shop/e, Gateway shop/f and 1 more",
		"warning: Gateway shop/c: y; the same for Gateway shop/h", "error: Gateway shop/d: x", "a: info: none", "b: info: none",
		"warning: Gateway shop/a: x", "error: Gateway shop/a: unknown", "error: Gateway shop/b: unknown",
	}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestSeveralDocuments: an object with several documents has one problem, which names all but the one in force.
func TestSeveralDocuments(t *testing.T) {
	a := analyze.New()
	for _, file := range []string{"a.yaml", "b.yaml", "c.yaml", "d.yaml"} {
		a.File(file, []byte(service))
	}
	want(t, a.AllProblems("mesh.local"),
		"b.yaml:1: error: ServiceEntry shop/web: metadata.name: this object was declared already at a.yaml:1, which is the one in force; c.yaml:1 and d.yaml:1 declare it, too; remove or rename all but one")
}
