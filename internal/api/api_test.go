package api

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/omap"
)

// What these types are used as elsewhere.
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
		return Key{part.Draw(t, "kind"), part.Draw(t, "namespace"), part.Draw(t, "name")}
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
	if got := (Key{"Sidecar", "ns", "a"}).String(); got != "Sidecar ns/a" {
		t.Error(got)
	}
}

func TestProblemNames(t *testing.T) {
	base := Problem{Object: Key{"Sidecar", "ns", "a"}, Position: Position{"f.yaml", 3}, Severity: Error, Field: "spec", Reason: "no"}
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

// TestSupportedFields: each line of the table names a field that exists, and each kind has its lines.
func TestSupportedFields(t *testing.T) {
	for _, g := range groups() {
		for _, name := range g.kinds {
			k := kind{class: ownKind, name: name}
			m := k.message()
			if m == nil || kindOfSpec(m) != name {
				t.Errorf("%s has no message of its own", name)
				continue
			}
			f := supported()[name]
			if f == nil {
				t.Errorf("%s has no supported fields", name)
				continue
			}
			exists(t, name, m.ProtoReflect().Descriptor(), f)
		}
	}
	exists(t, kindMesh, new(meshconfig.MeshConfig).ProtoReflect().Descriptor(), supported()[kindMesh])
	if len(supported()) != 6 {
		t.Errorf("%d kinds", len(supported()))
	}
}

func exists(t *testing.T, at string, d protoreflect.MessageDescriptor, f *field) {
	t.Helper()
	if f.all && len(f.children) > 0 {
		t.Errorf("%s is listed together with fields beneath it", at)
	}
	for name, child := range f.children {
		fd := d.Fields().ByJSONName(name)
		switch {
		case fd == nil:
			t.Errorf("%s.%s does not exist", at, name)
		case fd.Kind() == protoreflect.EnumKind && child.values != "":
			for v := range strings.SplitSeq(child.values, "|") {
				if fd.Enum().Values().ByName(protoreflect.Name(v)) == nil {
					t.Errorf("%s.%s cannot be %s", at, name, v)
				}
			}
		case len(child.children) > 0:
			exists(t, at+"."+name, fd.Message(), child)
		}
	}
}

// TestMoved: a document further down in its file differs in its lines only.
func TestMoved(t *testing.T) {
	text := plain + "---\n" + strings.Replace(plain, "STATIC", "NONE", 1) + "---\nspec: [\n"
	here, there := Decode("f.yaml", []byte(text)), Decode("f.yaml", []byte("#\n#\n#\n"+text))
	for i := range here {
		here[i].Check()
		there[i].Check()
		moved := here[i].Moved(3)
		if moved.Position != there[i].Position || !slices.Equal(moved.Problems, there[i].Problems) {
			t.Errorf("moved: %+v, want %+v", moved, there[i])
		}
		if o := moved.Object; o != nil && (o.Position != there[i].Object.Position || o.Hash != there[i].Object.Hash || o == here[i].Object) {
			t.Errorf("moved: %v at %v, want %v", o, o.Position, there[i].Object.Position)
		}
	}
}

// TestUnknownSpec: objects of other packages' kinds are answered, not a reason to panic.
func TestUnknownSpec(t *testing.T) {
	for _, o := range []*Object{{}, {Spec: &networking.Gateway{}}} {
		if !Failed(Validate(o)) || len(Unsupported(o)) != 1 {
			t.Errorf("%T is taken", o.Spec)
		}
	}
}
