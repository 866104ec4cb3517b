package install

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var update = flag.Bool("update", false, "rewrite golden files, and the definitions of Istio's kinds")

// TestRender: charts rendered with values. Each archive has "chart", maybe "release", "values.yaml", and the output or the error.
func TestRender(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			in := map[string]string{"chart": ControlPlane, "namespace": "istio-system"}
			var kept, got []txtar.File
			for _, f := range a.Files {
				if slices.Contains([]string{"chart", "namespace", "values.yaml", "set"}, f.Name) {
					kept = append(kept, f)
					in[f.Name] = strings.TrimSuffix(string(f.Data), "\n")
				}
			}
			got = rendered(t, in)
			if *update {
				a.Files = append(kept, got...)
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want := txtar.Format(&txtar.Archive{Files: a.Files[len(kept):]})
			if is := txtar.Format(&txtar.Archive{Files: got}); !bytes.Equal(is, want) {
				t.Errorf("the output differs; run go test ./internal/ctl/install -update and review the difference. It is now:\n%s", is)
			}
		})
	}
}

// rendered returns what becomes of the values of an archive.
func rendered(t *testing.T, in map[string]string) []txtar.File {
	t.Helper()
	values, err := ReadValues([]File{{"values.yaml", []byte(in["values.yaml"])}}, strings.Fields(in["set"]))
	var objects []*unstructured.Unstructured
	if err == nil {
		objects, err = Render(in["chart"], Release{Name: "gateway", Namespace: in["namespace"]}, values)
	}
	var warnings []string
	if err == nil && in["chart"] == ControlPlane {
		warnings, err = checkSettings(objects)
	}
	if err != nil {
		return []txtar.File{{Name: "error", Data: []byte(err.Error() + "\n")}}
	}
	unused, err := ineffective(in["chart"], values)
	if err != nil {
		t.Fatal(err)
	}
	var files []txtar.File
	if warnings = append(warnings, unused...); len(warnings) > 0 {
		files = append(files, txtar.File{Name: "warnings", Data: []byte(strings.Join(warnings, "\n") + "\n")})
	}
	out, err := Print(objects)
	if err != nil {
		t.Fatal(err)
	}
	return append(files, txtar.File{Name: "output.yaml", Data: out})
}

// TestPermissions: the chart gives the control plane the permissions of manifests/rbac.yaml, and its webhooks are the same as in manifests/webhooks.yaml.
func TestPermissions(t *testing.T) {
	objects, err := Render(ControlPlane, Release{Name: "pilot", Namespace: "istio-system"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]map[string]any{}
	for _, o := range objects {
		made[o.GetKind()+" "+o.GetName()] = o.Object
	}
	for _, file := range []string{"rbac.yaml", "webhooks.yaml"} {
		data, err := os.ReadFile(filepath.Join("../../../manifests", file))
		if err != nil {
			t.Fatal(err)
		}
		want, err := parse(data)
		if err != nil || len(want) < 2 {
			t.Fatalf("%s has %d objects: %v", file, len(want), err)
		}
		for _, o := range want {
			name := o.GetKind() + " " + o.GetName()
			for _, field := range []string{"rules", "roleRef", "subjects", "webhooks"} {
				if is, want := plain(t, made[name][field]), plain(t, o.Object[field]); !reflect.DeepEqual(is, want) {
					t.Errorf("%s: %s of the chart: %v\n%s has: %v", name, field, is, file, want)
				}
			}
		}
	}
}

// plain returns a value without what says the same in another way: fields with their defaults.
func plain(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, usual := range []string{`,"scope":"*"`, `"matchPolicy":"Equivalent",`} {
		text = bytes.ReplaceAll(text, []byte(usual), nil)
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestDefinitions: the chart of definitions has the definitions of the API module.
func TestDefinitions(t *testing.T) {
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "istio.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	const name = "customresourcedefinitions.gen.yaml"
	want, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(module)), "kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join("../../../manifests/charts", Definitions, "files", name)
	if *update {
		if err := os.WriteFile(copied, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if is, err := os.ReadFile(copied); err != nil || !bytes.Equal(is, want) {
		t.Errorf("%s is not that of the API module (%v); run go test ./internal/ctl/install -run TestDefinitions -update", copied, err)
	}
	objects, err := Render(Definitions, Release{}, nil)
	if err != nil || len(objects) < 10 {
		t.Errorf("%d definitions: %v", len(objects), err)
	}
}

// TestSchema: each value has a description and, unless it has no effect, a default; and each default is in the schema.
func TestSchema(t *testing.T) {
	for _, name := range []string{ControlPlane, Gateway, Definitions} {
		c, err := load(name)
		if err != nil {
			t.Fatal(err)
		}
		root, err := schemaOf(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkValues(c, c.values); err != nil {
			t.Errorf("the defaults of %s: %v", name, err)
		}
		var visit func(s *schema, at string)
		visit = func(s *schema, at string) {
			for _, one := range s.Properties {
				visit(one, at+".")
			}
			if at != "" && s.Description == "" {
				t.Errorf("%s: a value has no description", name)
			}
		}
		visit(root, "")
	}
}

// TestOver: values of a later call lie over the former ones, and null takes one back.
func TestOver(t *testing.T) {
	below := map[string]any{"a": 1, "b": map[string]any{"c": 1, "d": 2}, "e": map[string]any{"f": 1}}
	above := map[string]any{"a": nil, "b": map[string]any{"c": 3, "d": nil}, "g": 4}
	want := map[string]any{"b": map[string]any{"c": 3}, "e": map[string]any{"f": 1}, "g": 4}
	if is := Over(below, above); !reflect.DeepEqual(is, want) {
		t.Errorf("%v, want %v", is, want)
	}
	if _, ok := below["a"]; !ok {
		t.Error("the former values have changed")
	}
}

// TestWritten: uninstall removes what the roles of the control plane let it write, and never a Secret that users make.
func TestWritten(t *testing.T) {
	own, everywhere, err := written("mesh")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range append(own, everywhere...) {
		names = append(names, r.String())
	}
	want := []string{
		"ConfigMap mesh/pilot-policies-0", "ConfigMap mesh/pilot-policies-1", "ConfigMap mesh/pilot-policies-2", "ConfigMap mesh/pilot-policies-3",
		"ConfigMap mesh/pilot-bundles", "Secret mesh/istio-ca-secret", "Lease mesh/pilot-discovery-leader", "Lease mesh/pilot-discovery-untaint", "ConfigMap istio-ca-root-cert", "ConfigMap istio-ca-crl",
	}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// TestOrder: objects are removed in the opposite order, webhooks first.
func TestOrder(t *testing.T) {
	objects, _, err := Plan{Namespace: "istio-system", Chart: ControlPlane, SkipDefinitions: true}.Objects()
	if err != nil {
		t.Fatal(err)
	}
	if objects[0].GetKind() != "Namespace" || !isWebhook(objects[len(objects)-1].GetKind()) {
		t.Errorf("%s is applied first, %s last", objects[0].GetKind(), objects[len(objects)-1].GetKind())
	}
	for _, o := range objects {
		if !slices.Contains(order, o.GetKind()) {
			t.Errorf("the kind %s has no place in the order", o.GetKind())
		}
		if !ours(o) {
			t.Errorf("%v has not the label of its owner", refer(o))
		}
	}
	if last := backwards(joined(nil, objects)); !isWebhook(last[0].Kind) || last[len(last)-1].Kind != "Namespace" {
		t.Errorf("%v is removed first", last[0])
	}
}
