package api

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api/fields"
)

// isShape reports whether a section of the table has fields that occur in several places: its name begins in lower case.
func isShape(name string) bool { return 'a' <= name[0] && name[0] <= 'z' }

// TestFieldsPage: doc/fields.md has a line for each line of the table of supported fields.
func TestFieldsPage(t *testing.T) {
	const page, begin = "../../doc/fields.md", "<!-- fields: written by go test ./internal/api -run TestFieldsPage -update -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(text), begin)
	if !found {
		t.Fatalf("%s lacks the mark before the tables", page)
	}
	want := head + begin + unreadKinds() + fieldTables(fields.Table())
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Errorf("%s is old; run go test ./internal/api -run TestFieldsPage -update", page)
	}
}

// TestFieldVerdicts: a row of the page says the same as the line of the table.
func TestFieldVerdicts(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"\ta", "| `a` | yes |  |"},
		{"\ta.b  no: use c", "| `a.b` | no | use c |"},
		{"\ta  http: use c", "| `a` | yes | for HTTP only, otherwise use c |"},
		{"\ta  client http", "| `a` | yes | for connections of a client to a service only; for HTTP only |"},
		{"\ta  X|Y", "| `a` | partly | only X, Y |"},
		{"\ta  gateway", "| `a` | partly | at gateways only |"},
		{"\ta  shape", "| `a` |  | see [shape](#part-shape) |"},
	} {
		if got := fieldRow(c.line, []string{"shape"}); got != c.want {
			t.Errorf("%q: got %s, want %s", c.line, got, c.want)
		}
	}
}

// unreadKinds returns a list of the kinds of Istio and of the Gateway API that have no effect.
func unreadKinds() string {
	var names []string
	for _, k := range UnsupportedKinds() {
		names = append(names, fmt.Sprintf("`%s` (%s)", k.Name, k.Group))
	}
	return "\nKinds without effect, whose objects have the Problem `kind-unsupported`: " + strings.Join(names, ", ") + ".\n"
}

// fieldTables returns links to all sections, and a heading and a table for each one, kinds before shapes.
func fieldTables(table string) string {
	var names []string
	rows := map[string][]string{}
	for line := range strings.Lines(table) {
		line = strings.TrimRight(line, "\n")
		if line == "" || line[0] == '\t' {
			if line != "" {
				last := names[len(names)-1]
				rows[last] = append(rows[last], line)
			}
			continue
		}
		name, like, _ := strings.Cut(line, " ")
		names = append(names, name)
		if like = strings.TrimSpace(like); like != "" { // the section has the fields of a shape
			rows[name] = append(rows[name], "\t"+allFields+" "+like)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		if isShape(a) == isShape(b) {
			return strings.Compare(a, b)
		}
		if isShape(a) {
			return 1
		}
		return -1
	})
	var out strings.Builder
	var links []string
	for _, name := range names {
		links = append(links, sectionLink(name))
	}
	out.WriteString("\nThe tables: " + strings.Join(links, ", ") + ".\n")
	for _, name := range names {
		title := name
		if isShape(name) {
			title = "Part " + name // ProxyConfig and proxyConfig need headings that differ
		}
		fmt.Fprintf(&out, "\n## %s\n\n| Field | Supported | Remark |\n|---|---|---|\n", title)
		for _, line := range rows[name] {
			out.WriteString(fieldRow(line, names) + "\n")
		}
	}
	return out.String()
}

// sectionLink returns a link to a section of the page.
func sectionLink(name string) string {
	if isShape(name) {
		return fmt.Sprintf("[%s](#part-%s)", name, strings.ToLower(name))
	}
	return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
}

// remarks are the words of the table for readers. partly is true if the word takes a part of the meaning of the field.
var remarks = map[string]struct {
	text   string
	partly bool
}{
	"client":     {"for connections of a client to a service only", false},
	"http":       {"for HTTP only", false},
	"http2":      {"for HTTP/2 only", false},
	"tcp":        {"for connections that are not HTTP only", false},
	"server":     {"for connections of a sidecar to its application", false},
	"gateway":    {"at gateways only", true},
	"selected":   {"in an object with a `workloadSelector`, and at gateways", true},
	"targetKind": {"only the kind Gateway", true},
}

// allFields is the name of the field in a line for a section that has the fields of a shape.
const allFields = "*"

// fieldRow returns the row of a page for a line of the table.
func fieldRow(line string, sections []string) string {
	words, advice, _ := strings.Cut(line, ": ")
	list := strings.Fields(words)
	verdict, notes := "yes", []string(nil)
	for _, word := range list[1:] {
		r, known := remarks[word]
		switch {
		case word == "no":
			verdict = "no"
		case known:
			notes = append(notes, r.text)
			if r.partly {
				verdict = "partly"
			}
		case slices.Contains(sections, word):
			verdict = ""
			notes = append(notes, "see "+sectionLink(word))
		default:
			verdict = "partly"
			notes = append(notes, "only "+strings.ReplaceAll(word, "|", ", "))
		}
	}
	if advice = strings.ReplaceAll(strings.TrimSpace(advice), "|", `\|`); advice != "" && verdict == "yes" && len(notes) > 0 {
		notes[len(notes)-1] += ", otherwise " + advice // for ports where the field has no effect
	} else if advice != "" {
		notes = append(notes, advice)
	}
	name := "`" + list[0] + "`"
	if list[0] == allFields {
		name = "all fields"
	}
	return fmt.Sprintf("| %s | %s | %s |", name, verdict, strings.Join(notes, "; "))
}
