package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestTable: doc/values.md has a table of all values, made of the schemas.
func TestTable(t *testing.T) {
	const page, begin, end = "../../../doc/values.md", "-update -->\n", "<!-- values: end -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, name := range []string{ControlPlane, Gateway, Plugin} {
		c, err := load(name)
		if err != nil {
			t.Fatal(err)
		}
		root, err := schemaOf(c)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "### Chart `%s`\n\n| Value | Default | Meaning |\n|---|---|---|\n", name)
		var unused []string
		rows(t, &out, &unused, root, "", c.values)
		if len(unused) > 0 {
			fmt.Fprintf(&out, "\nWithout effect, accepted so that values files of Istio work: %s.\n", strings.Join(unused, ", "))
		}
		out.WriteString("\n")
	}
	before, rest, _ := bytes.Cut(text, []byte(begin))
	_, after, found := bytes.Cut(rest, []byte(end))
	if !found {
		t.Fatalf("%s lacks the marks of the table", page)
	}
	want := string(before) + begin + "\n" + out.String() + end + string(after)
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Errorf("the table of values in %s is old; run go test ./internal/ctl/install -run TestTable -update", page)
	}
}

// rows writes a row for each value of a part of the schema.
func rows(t *testing.T, out *strings.Builder, unused *[]string, s *schema, at string, defaults map[string]any) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		one := s.Properties[name]
		below, _ := defaults[name].(map[string]any)
		switch {
		case one.Unused:
			*unused = append(*unused, "`"+at+name+"`")
		case one.Properties != nil:
			rows(t, out, unused, one, at+name+".", below)
		default:
			usual := ""
			if v, ok := defaults[name]; ok && v != nil && v != "" {
				text, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				usual = "`" + strings.Trim(strings.ReplaceAll(string(text), "|", "\\|"), `"`) + "`"
			}
			fmt.Fprintf(out, "| `%s` | %s | %s |\n", at+name, usual, strings.ReplaceAll(one.Description, "|", "\\|"))
		}
	}
}
