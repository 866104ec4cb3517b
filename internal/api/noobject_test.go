package api_test

import (
	"slices"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
)

// TestForms: a document with a kind and an apiVersion, or with a part of an object of the mesh, should be an object. Text in two braces makes
// a template only of what cannot be used, and only if it is an action.
func TestForms(t *testing.T) {
	const head = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a}\n"
	for _, c := range []struct {
		name, text string
		want       api.Form
	}{
		{"an object", head + "spec: {host: a}", api.AnObject},
		{"an object with a mistake", head + "spec: {hosts: a}", api.AnObject},
		{"another kind", "{apiVersion: example.com/v1, kind: Thing}", api.AnObject},
		{"package.json", `{"name": "a", "version": "1.0.0"}`, api.NoObject},
		{"a chart", "apiVersion: v2\nname: a", api.NoObject},
		{"a list", "- {op: add, path: /spec}", api.NoObject},
		{"a list of objects", "- {apiVersion: networking.istio.io/v1, kind: Sidecar}", api.AnObject},
		{"a list of lists", "- - {apiVersion: networking.istio.io/v1, kind: Sidecar}", api.NoObject},
		{"a text", "hello", api.NoObject},
		{"a kind of another program without a version", "kind: pipeline\nsteps: []", api.NoObject},
		{"a kind of the mesh alone", "kind: Sidecar", api.AnObject},
		{"a kind of the mesh that is not acted on", "kind: Telemetry", api.AnObject},
		{"a group of the mesh alone", "apiVersion: security.istio.io/v1beta1\nspec: {}", api.AnObject},
		{"metadata and spec", "metadata: {name: a}\nspec: {host: a}", api.AnObject},
		{"metadata alone", "metadata: {name: a}", api.NoObject},
		{"not well-formed", head + "spec: {host: [a}", api.AnObject},
		{"not well-formed, without a version", "kind: Sidecar\nspec: [", api.AnObject},
		{"not well-formed, and nothing of an object", "{\n  // a comment\n  \"files\": [}", api.NoObject},
		{"a template", "{{- if .Values.a }}\n" + head + "spec: {host: a}\n{{ end }}", api.ATemplate},
		{"a template by a function", head + "spec: {{ toYaml .spec }}", api.ATemplate},
		{"a well-formed template", head + "spec: {host: '{{ .Values.host }}'}", api.ATemplate},
		{"a name of a template", "apiVersion: v1\nkind: Service\nmetadata: {name: '{{ .name }}'}", api.ATemplate},
		{"an object with an action that can be used", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: '{{ .pod }}'}", api.AnObject},
		{"two braces of another language", head + "spec: {host: 'a = {{1, 2}, {{x}}}'}", api.AnObject},
	} {
		docs := api.Decode("f.yaml", []byte(c.text))
		if len(docs) != 1 {
			t.Fatalf("%s: %d documents", c.name, len(docs))
		}
		docs[0].Check()
		if docs[0].Form != c.want {
			t.Errorf("%s: form %d, want %d", c.name, docs[0].Form, c.want)
		}
	}
}

// TestAside: beside an object, a document that is no object is a mistake, except for templates.
func TestAside(t *testing.T) {
	aside := func(text string) (list []bool) {
		docs := api.Decode("f.yaml", []byte(text))
		for i := range docs {
			list = append(list, docs[i].Aside(api.HasObject(docs)))
		}
		return list
	}
	const template, object, other = "{{ if .a }}\n", "apiVersion: v1\nkind: Pod\n", "a: b\n"
	for text, want := range map[string][]bool{
		other + "---\n" + other:     {true, true},
		other + "---\n" + object:    {false, false},
		template + "---\n" + other:  {true, true},
		object + "---\n" + template: {false, true},
	} {
		if got := aside(text); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestMergeRemarks: a chart has one remark for all that is in its directory, also for the charts in it, and for nothing else.
func TestMergeRemarks(t *testing.T) {
	var all []api.Problem
	for _, file := range []string{"Chart.txt", "a/Chart.yaml", "a/values.yaml", "a/charts/b/Chart.yaml", "ab/c.yaml", "a/templates/d.yaml"} {
		all = append(all, api.Remark(file, api.NoObject))
	}
	mistake := api.Problem{Position: api.Position{File: "a/templates/e.yaml"}, Severity: api.Error, Code: "syntax"}
	all = append(all, mistake)
	var files []string
	for _, p := range api.MergeRemarks(all) {
		files = append(files, p.Position.File)
	}
	if want := []string{"Chart.txt", "a/Chart.yaml", "ab/c.yaml", "a/templates/e.yaml"}; !slices.Equal(files, want) {
		t.Errorf("remarks about %v, want %v", files, want)
	}
}

// TestEmbedded: the mesh configuration in a document of another kind is the same as one of its own, with the lines of its file.
func TestEmbedded(t *testing.T) {
	const operator = "apiVersion: install.istio.io/v1alpha1\nkind: IstioOperator\nspec:\n"
	for _, c := range []struct {
		name, text string
		line       int // of the mesh configuration; 0 if there is none
	}{
		{"operator", operator + "  meshConfig:\n    rootNamespace: r\n", 5},
		{"values of an operator", operator + "  values: {meshConfig: {rootNamespace: r}}\n", 4},
		{"operator without", operator + "  profile: minimal\n", 0},
		{"another group", "apiVersion: example.com/v1\nkind: IstioOperator\nspec: {meshConfig: {rootNamespace: r}}", 0},
		{"sail", "apiVersion: sailoperator.io/v1\nkind: Istio\nspec: {values: {meshConfig: {rootNamespace: r}}}", 3},
		{"values", "a: b\nmeshConfig: {rootNamespace: r}", 2},
		{"config map", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio}\ndata:\n  mesh: |\n    rootNamespace: r\n", 6},
		{"item of a list", "kind: List\napiVersion: v1\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: istio-1}\n  data:\n    mesh: |\n      rootNamespace: r\n", 9},
		{"another config map", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {mesh: 'rootNamespace: r'}", 0},
		{"an object", "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: a}\nmeshConfig: {rootNamespace: r}", 0},
	} {
		docs := api.Decode("f.yaml", []byte(c.text))
		got := docs[len(docs)-1].Embedded()
		switch {
		case (got == nil) != (c.line == 0):
			t.Errorf("%s: %+v", c.name, got)
		case got != nil && (got.Mesh.GetRootNamespace() != "r" || got.Mesh.GetTrustDomain() != "cluster.local" || got.Position.Line != c.line):
			t.Errorf("%s: line %d, %v", c.name, got.Position.Line, got.Mesh)
		}
	}
	broken := api.Decode("f.yaml", []byte(operator+"  meshConfig:\n    connectTimeout: never\n"))[0].Embedded()
	if broken == nil || broken.Mesh != nil || len(broken.Problems) != 1 || broken.Problems[0].Position.Line != 5 {
		t.Errorf("broken: %+v", broken)
	}
}
