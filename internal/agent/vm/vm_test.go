package vm

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestFiles: each archive has the facts (facts.json), the WorkloadGroup and the mesh configuration, and the files that follow, or the error.
func TestFiles(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) < 4 {
		t.Fatal(archives, err)
	}
	for _, path := range archives {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		input, want := a.Files[:3], a.Files[3:]
		got := made(t, input)
		if *update {
			a.Files = append(input, got...)
			if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i].Name != want[i].Name || !bytes.Equal(got[i].Data, want[i].Data) {
				t.Errorf("%s: the files differ; run with -update if that is meant:\n%s", path, txtar.Format(&txtar.Archive{Files: got}))
				break
			}
		}
	}
}

// made returns the files that are made from the input.
func made(t *testing.T, input []txtar.File) (files []txtar.File) {
	t.Helper()
	var f Facts
	if err := json.Unmarshal(input[0].Data, &f); err != nil {
		t.Fatal(err)
	}
	mesh, problems := api.DecodeMesh(input[2].Name, input[2].Data)
	if mesh == nil {
		t.Fatal(problems)
	}
	f.Mesh, f.Token, f.Roots = mesh, []byte("token"), []byte("roots\n")
	group, err := ReadGroup(input[1].Name, input[1].Data, f.Namespace, f.Group)
	var list []File
	var remarks []string
	if err == nil {
		f.Group, f.Namespace, f.Spec = group.Name, group.Namespace, group.Spec.(*networking.WorkloadGroup)
		list, remarks, err = Files(f)
	}
	if err != nil {
		return []txtar.File{{Name: "error", Data: []byte(strings.ReplaceAll(err.Error(), "\u00a0", " ") + "\n")}} // the protobuf library varies its spaces
	}
	for _, one := range list {
		files = append(files, txtar.File{Name: fmt.Sprintf("%s %o", one.Name, one.Mode), Data: one.Content})
	}
	if len(remarks) > 0 {
		files = append(files, txtar.File{Name: "remarks", Data: []byte(strings.Join(remarks, "\n") + "\n")})
	}
	return files
}

// TestQuote: a shell reads the quoted text back unchanged.
func TestQuote(t *testing.T) {
	for _, text := range []string{"", "a b", `{"a":"b"}`, "it's", "'`$HOME\\\"", `\`} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "A="+quote(text)+`; printf %s "$A"`).Output()
		if err != nil || string(out) != text {
			t.Errorf("%q is read as %q: %v", text, out, err)
		}
	}
}

func TestGroup(t *testing.T) {
	g := Group{Name: "vm", Namespace: "shop", ServiceAccount: "shop", Labels: []string{"app=shop"}, Annotations: []string{"team=blue"}, Ports: []string{"http=8080"}}
	text, err := g.YAML()
	const want = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata:
  name: vm
  namespace: shop
spec:
  metadata:
    annotations:
      team: blue
    labels:
      app: shop
  template:
    ports:
      http: 8080
    serviceAccount: shop
`
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s", err, text)
	}
	for want, g := range map[string]Group{
		"needs a name":                  {Namespace: "shop"},
		`--labels: "app" is not NAME=`:  {Name: "vm", Namespace: "shop", Labels: []string{"app"}},
		`--ports: a=0: "0" is not a po`: {Name: "vm", Namespace: "shop", Ports: []string{"a=0"}},
		"metadata.name":                 {Name: "V_M", Namespace: "shop"},
	} {
		if _, err := g.YAML(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %s", g, err, want)
		}
	}
}

func FuzzReadGroup(f *testing.F) {
	f.Add([]byte("kind: WorkloadGroup"))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = ReadGroup("f", text, "", "") })
}
