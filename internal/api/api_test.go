package api

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/api/fields"
	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// The interfaces that these types implement elsewhere.
var (
	_ omap.Map[Key, omap.Unit] // Key is an omap.Key
	_ interface {              // query.Output
		omap.Value
		OutputName() string
	} = Problem{}
)

func TestKeyOrder(t *testing.T) {
	part := rapid.StringMatching(`[a-b.-]{0,2}`)
	draw := rapid.Custom(func(t *rapid.T) Key {
		return Key{Kind: part.Draw(t, "kind"), Namespace: part.Draw(t, "namespace"), Name: part.Draw(t, "name"), Cluster: part.Draw(t, "cluster")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		c := a.Compare(b)
		if (c == 0) != (a == b) || cmp.Compare(b.Compare(a), 0) != -cmp.Compare(c, 0) {
			t.Fatalf("%v compared with %v is %d", a, b, c)
		}
		if (a == b) != bytes.Equal(a.AppendTo(nil), b.AppendTo(nil)) {
			t.Fatalf("%v and %v have the same bytes", a, b)
		}
	})
	if got := (Key{Kind: "Sidecar", Namespace: "ns", Name: "a"}).String(); got != "Sidecar ns/a" {
		t.Error(got)
	}
	if got := (Key{Kind: "Node", Name: "n1", Cluster: "west"}).String(); got != "Node n1 in cluster west" {
		t.Error(got)
	}
}

func TestProblemNames(t *testing.T) {
	base := Problem{Object: Key{Kind: "Sidecar", Namespace: "ns", Name: "a"}, Position: Position{File: "f.yaml", Line: 3}, Severity: Error, Field: "spec", Reason: "no"}
	all := []Problem{base, base, base, base, base, base, base}
	all[1].Object.Name = "b"
	all[2].Position.File = "g.yaml"
	all[3].Position.Line = 4
	all[4].Severity = Warning
	all[5].Field = "spec.egress"
	all[6].Reason = "nope"
	names := map[string]bool{}
	for _, p := range all {
		names[p.OutputName()] = true
		if !strings.HasPrefix(p.OutputName(), p.Object.String()) {
			t.Errorf("the name does not begin with the object: %s", p.OutputName())
		}
	}
	if len(names) != len(all) {
		t.Errorf("%d names of %d problems", len(names), len(all))
	}
	if twin := base; twin.OutputName() != base.OutputName() || twin.ContentHash() != base.ContentHash() {
		t.Error("equal problems have different names")
	}
}

// TestEveryKindHasFields: the table of supported fields has a section for each kind whose objects are read.
func TestEveryKindHasFields(t *testing.T) {
	sections := map[string]bool{}
	for line := range strings.Lines(fields.Table()) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); line[0] != '\t' {
			sections[name] = true
		}
	}
	for _, g := range groups() {
		for _, name := range g.kinds {
			own, _ := FindKind(name)
			if of, ok := kindOfSpec(kind{known: &own}.message()); !ok || of.Name != name {
				t.Errorf("%s has no message of its own", name)
			}
			if !sections[name] {
				t.Errorf("%s has no section in the table of fields", name)
			}
		}
	}
	if !sections[kindMesh] {
		t.Error("a mesh configuration has no section in the table of fields")
	}
}

// TestMoved: a document further down in its file differs in its lines only.
func TestMoved(t *testing.T) {
	text := plain + "---\n" + strings.Replace(plain, "STATIC", "NONE", 1) + "---\nspec: [\n"
	here, there := Decode("f.yaml", []byte(text)), Decode("f.yaml", []byte("#\n#\n#\n"+text))
	for i := range here {
		here[i].Check()
		there[i].Check()
		moved := here[i].ShiftLines(3)
		if moved.Position != there[i].Position || !slices.Equal(moved.Problems, there[i].Problems) {
			t.Errorf("moved: %+v, want %+v", moved, there[i])
		}
		if o := moved.Object; o != nil && (o.Position != there[i].Object.Position || o.Hash != there[i].Object.Hash || o == here[i].Object) {
			t.Errorf("moved: %v at %v, want %v", o, o.Position, there[i].Object.Position)
		}
	}
}

// TestUnknownSpec: objects with a spec of an unknown type get a Problem, and cause no panic.
func TestUnknownSpec(t *testing.T) {
	for _, o := range []*Object{{}, {Spec: &networking.HTTPRoute{}}} {
		if !Failed(Validate(o)) || len(Unsupported(o)) != 1 {
			t.Errorf("%T is taken", o.Spec)
		}
	}
}
