package template

import (
	"encoding/json"
	"strings"
	"testing"
	"text/template"
)

type city struct {
	Name  string
	Size  uint32
	Twin  *city
	inner string //nolint:unused // templates must not see it
}

// values are what the templates of the tests see.
func values() any {
	var tree map[string]any
	if err := json.Unmarshal([]byte(`{"name": "a", "none": null, "yes": true, "n": 3, "list": ["x", "y", {"z": 1}], "map": {"b": "2", "a": "1"}, "empty": []}`), &tree); err != nil {
		panic(err)
	}
	tree["city"] = &city{Name: "Ulm", Size: 7, Twin: &city{Name: "Ur"}}
	tree["port"], tree["small"], tree["strings"] = uint32(80), int8(-3), map[string]string{"k": "v"}
	return tree
}

func asJSON(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// both renders a text with this package and with text/template.
func both(text string) (ours, theirs string, failed, failedThere error) {
	ours, failed = Render("t", text, values(), map[string]func(any) (any, error){"toJSON": func(v any) (any, error) { return asJSON(v) }})
	t, err := template.New("t").Funcs(template.FuncMap{"toJSON": asJSON}).Parse(text)
	if err != nil {
		return ours, "", failed, err
	}
	var out strings.Builder
	err = t.Execute(&out, values())
	return ours, out.String(), failed, err
}

// same are templates that both packages render to the same text.
var same = []string{
	"", "text", "{{/* a remark */}}-{{- /* trimmed */ -}} x", "{{.name}} {{.n}} {{.yes}} {{.none}} {{.nothing}} {{.list}} {{.map}}", "{{.city.Name}} {{.city.Twin.Name}} {{.port}}",
	"{{if .yes}}a{{else}}b{{end}}{{if .empty}}a{{else if .list}}c{{else}}b{{end}}{{if .none}}x{{end}}{{if .nothing.deeper}}x{{end}}",
	"{{with .city}}{{.Name}}{{else with .name}}{{.}}{{end}} {{with $x := .name}}{{$x}}{{$.n}}{{end}} {{with .none}}x{{else with .name}}{{.}}{{end}}",
	"{{range .list}}[{{.}}]{{end}} {{range $i, $v := .list}}{{$i}}={{$v}} {{end}} {{range $v := .list}}{{$v}}{{end}} {{range .empty}}x{{else}}none{{end}}",
	"{{range $k, $v := .map}}{{$k}}={{$v}};{{end}} {{range .map}}{{.}}{{end}} {{range 3}}{{.}}{{end}} {{range $i := 2}}{{$i}}{{end}} {{range .small}}x{{else}}none{{end}}",
	"{{range $i, $v := .list}}{{if eq $i 1}}{{continue}}{{end}}{{$i}}{{end}} {{range .list}}{{break}}{{end}} {{range .none}}x{{else}}none{{end}}",
	`{{$x := 1}}{{range .list}}{{$x = .}}{{end}}{{$x}} {{$x := 2}}{{if true}}{{$x := 3}}{{$x}}{{end}}{{$x}}`, "{{$i := 9}}{{$v := 8}}{{range $i, $v = .list}}{{end}}{{$i}}{{$v}}",
	`{{define "t1"}}<{{.}} {{$}}>{{end}}{{template "t1" .name}}{{template "t1"}} {{block "b" .n}}{{.}}{{end}}`,
	`{{eq .name "a"}} {{eq .name "b" "a"}} {{ne .n 3.0}} {{eq .port 80}} {{lt .small 1}} {{lt 1 .port}} {{ge "b" "a"}} {{gt .port .city.Size}} {{le 2 2}} {{eq .none nil}}`,
	`{{and .yes .name}} {{or .none "x" .nothing.a}} {{not .yes}} {{and .none (index .list 9)}} {{.name | or .none}} {{"x" | and true}}`,
	`{{len .list}} {{len .name}} {{len .map}} {{index .list 1}} {{index .map "b"}} {{index .list 2 "z"}} {{index .strings "k"}}{{index .strings "none"}} {{index .name 0}} {{(index .list 2).z}}`,
	"{{print 1 2 \"x\" .name}} {{printf \"%s-%v-%q\" .name .n .map.a}} {{println 1}} {{.name | printf \"%s:%s\" \"y\"}} {{toJSON .list}} {{.map | toJSON}} {{toJSON .none}} {{toJSON .city.Twin}}",
	"{{1}} {{1.5}} {{0x10}} {{'a'}} {{1e3}} {{`raw`}} {{true}} {{-3}} {{0x1p4}} {{1_000}} {{.small}}", "{{.name | print | print | len}}",
}

// TestLikeTheLibrary: results equal the results of text/template.
func TestLikeTheLibrary(t *testing.T) {
	for _, text := range same {
		ours, theirs, failed, failedThere := both(text)
		if failed != nil || failedThere != nil || ours != theirs {
			t.Errorf("%s\nours:   %q %v\ntheirs: %q %v", text, ours, failed, theirs, failedThere)
		}
	}
}

// TestMistakes: mistakes have the line, the text and the reason; what text/template refuses is refused here.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"{{ .name":                   "template: t:1: unclosed action",
		"a\n{{ .name.x }}":           "template: t:2:8: at <.name.x>: can't evaluate field x in type string; methods cannot be called",
		"{{ .city.inner }}":          "can't evaluate field inner in type *template.city",
		"{{ .city.Twin.Twin.Name }}": "can't evaluate field Name of a nil pointer of type *template.city",
		"{{ nosuch }}":               `function "nosuch" not defined`,
		"{{ $x }}":                   `undefined variable "$x"`,
		"{{ .name 1 }}":              ".name has arguments, but is not a function",
		"{{ 1 | .name }}":            ".name has arguments, but is not a function",
		"{{ eq 1 \"a\" }}":           "eq: incompatible types for comparison",
		"{{ eq .list .list }}":       "cannot be compared",
		"{{ eq 1 }}":                 "eq: wrong number of arguments",
		"{{ lt .none 1 }}":           "lt: incompatible types for comparison",
		"{{ len .n }}":               "a value of type float64 has no length",
		"{{ index .list 9 }}":        "index out of range: 9 of 3",
		"{{ index .list \"a\" }}":    "can't index a value of type []interface {} with one of type string",
		"{{ range .yes }}{{ end }}":  "range can't iterate over true",
		"{{ template \"none\" }}":    `template "none" is not defined`,
		"{{ 99999999999999999999 }}": "integer overflow",
		"{{ break }}":                "{{break}} outside {{range}}",
		"{{ printf 1 }}":             "the format 1 is not text",
		"{{ and }}":                  "wrong number of arguments",
		"{{ nil }}":                  "nil is not a command",
	} {
		_, _, failed, failedThere := both(text)
		if failed == nil || failedThere == nil || !strings.Contains(failed.Error(), want) {
			t.Errorf("%s: %v, want %q; text/template: %v", text, failed, want, failedThere)
		}
	}
}

// TestBounds: a template cannot run forever or fill the memory.
func TestBounds(t *testing.T) {
	for text, want := range map[string]string{
		`{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`:    "templates use each other more than 1000 deep",
		"{{range 9999999999}}{{end}}":                              "a range over 9999999999 has more than 1048576 steps",
		"{{range 1000000}}" + strings.Repeat("x", 100) + "{{end}}": "the result is longer than 16777216 bytes",
	} {
		if out, err := Render("t", text, nil, nil); err == nil || !strings.Contains(err.Error(), want) || len(out) > maxOutput {
			t.Errorf("%s: %d bytes, %v, want %q", text, len(out), err, want)
		}
	}
}

// FuzzRender: a template that both packages render has the same result in both.
func FuzzRender(f *testing.F) {
	for _, text := range same {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "range") && len(text) > 100 || strings.Contains(text, "define") {
			return // nested loops take time in text/template, which has no bounds
		}
		ours, theirs, failed, failedThere := both(text)
		if failed == nil && failedThere == nil && ours != theirs && !strings.Contains(ours+theirs, "0x") {
			t.Errorf("%s\nours:   %q\ntheirs: %q", text, ours, theirs)
		}
		if failed == nil && failedThere != nil {
			t.Logf("only text/template refuses %s: %v", text, failedThere)
		}
	})
}
