package template

import (
	"strings"
	"testing"
)

// TestSet: templates use each other and given functions, also as entries of maps; a strict set refuses fields of values that do not exist.
func TestSet(t *testing.T) {
	var set *Set
	set, err := Parse(map[string]string{
		"a": `{{ define "x" }}<{{ . }}>{{ end }}{{ include "b" .name }} {{ .files.get "f" }} {{ "g" | .files.get }}`,
		"b": `{{ template "x" . }}`,
		"c": `{{ .none.such }}`,
		"d": "\n" + `{{ include "c" . }}`,
	}, map[string]Function{"include": func(args ...any) (any, error) { return set.Render(args[0].(string), args[1]) }})
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{"name": "n", "files": map[string]any{"get": Function(func(args ...any) (any, error) { return args[0].(string) + "!", nil })}}
	if got, err := set.Render("a", values); got != "<n> f! g!" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := set.Render("c", values); got != "<no value>" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	set.Strict = true
	for _, name := range []string{"c", "d"} {
		if _, err := set.Render(name, values); err == nil || !strings.HasPrefix(err.Error(), "template: c:1:8: at <.none.such>: can't evaluate field such") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
