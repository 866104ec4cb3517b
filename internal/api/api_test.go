package api

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

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

// described are the descriptors of the messages in the table of supported fields.
func described(t *testing.T) map[string]protoreflect.MessageDescriptor {
	t.Helper()
	kinds := map[string]protoreflect.MessageDescriptor{kindMesh: new(meshconfig.MeshConfig).ProtoReflect().Descriptor()}
	for _, g := range groups() {
		for _, name := range g.kinds {
			own, _ := FindKind(name)
			m := kind{known: &own}.message()
			if of, ok := kindOfSpec(m); !ok || of.Name != name {
				t.Fatalf("%s has no message of its own", name)
			}
			kinds[name] = m.ProtoReflect().Descriptor()
		}
	}
	return kinds
}

// TestEveryFieldIsDecided: the table decides for every field of the API whether the product acts on it, and has no other lines.
func TestEveryFieldIsDecided(t *testing.T) {
	kinds := described(t)
	for name := range supported() {
		if kinds[name] == nil {
			t.Errorf("%s is no kind of object", name)
		}
	}
	for name, d := range kinds {
		if supported()[name] == nil {
			t.Errorf("%s has no section in supportedFields", name)
			continue
		}
		for _, reason := range undecided(name, d, supported()[name]) {
			t.Error(reason)
		}
	}
}

// TestUndecidedFieldsAreFound: a field without a line, a line without a field, and a line above others are found.
func TestUndecidedFieldsAreFound(t *testing.T) {
	d := new(networking.WorkloadEntry).ProtoReflect().Descriptor()
	of := func(table string) string {
		return strings.Join(undecided("W", d, parseFields(table)["W"]), "\n")
	}
	const most = "W\n\taddress\n\tports\n\tlabels\n\tnetwork  no: reason\n\tlocality\n\tserviceAccount\n"
	for table, want := range map[string]string{
		most + "\tweight\n":                    "",
		most:                                   "W.weight has no line in supportedFields: decide whether the product acts on it",
		most + "\tweight\n\tcolour\n":          "W.colour does not exist",
		most + "\tweight.sub\n":                "W.weight has no fields beneath it",
		most + "\tweight  shape\nshape\n\ta\n": "W.weight has no fields beneath it",
	} {
		if got := of(table); got != want {
			t.Errorf("%s: got %q, want %q", table, got, want)
		}
	}
	rule := new(networking.DestinationRule).ProtoReflect().Descriptor()
	got := undecided("D", rule, parseFields("D\n\thost\n\ttrafficPolicy\n\tsubsets no\n\texportTo\n\tworkloadSelector.matchLabels\n")["D"])
	if want := "D.trafficPolicy is listed as a whole: list the fields beneath it"; len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// undecided compares the fields of a message with their lines.
func undecided(at string, d protoreflect.MessageDescriptor, f *field) (reasons []string) {
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		path, child := at+"."+fd.JSONName(), f.children[fd.JSONName()]
		m := fd.Message()
		if fd.IsMap() {
			m = fd.MapValue().Message()
		}
		beneath := m != nil && m.ParentFile().Package() != "google.protobuf" && m.Fields().Len() > 0
		switch {
		case child == nil:
			reasons = append(reasons, path+" has no line in supportedFields: decide whether the product acts on it")
		case child.refused || child.gateway && child.listed:
		case !beneath && len(child.children) > 0:
			reasons = append(reasons, path+" has no fields beneath it")
		case child.listed && len(child.children) > 0:
			reasons = append(reasons, path+" is listed together with fields beneath it")
		case beneath && child.listed:
			reasons = append(reasons, path+" is listed as a whole: list the fields beneath it")
		case beneath:
			reasons = append(reasons, undecided(path, m, child)...)
		case fd.Kind() == protoreflect.EnumKind && child.values != "":
			for v := range strings.SplitSeq(child.values, "|") {
				if fd.Enum().Values().ByName(protoreflect.Name(v)) == nil {
					reasons = append(reasons, path+" cannot be "+v)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.children)) {
		if d.Fields().ByJSONName(name) == nil {
			reasons = append(reasons, at+"."+name+" does not exist")
		}
	}
	return reasons
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
