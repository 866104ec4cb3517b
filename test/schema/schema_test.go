package schema

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestSchemas compares the verdicts of an API server and of package api on documents that touch one constraint each.
func TestSchemas(t *testing.T) {
	judges, documents := oracles(t), bases(t)
	rules, known := readRules(t), readDifferences(t)
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			o := judges[kind]
			for i, base := range documents[kind] {
				for _, err := range o.judge(t, base) {
					t.Errorf("base document %d: an API server says %v", i, err)
				}
				for _, p := range analyze(t, base) {
					t.Errorf("base document %d: %v", i, p)
				}
			}
			if t.Failed() {
				return
			}
			c := comparison{oracle: o, bases: documents[kind], known: known}
			spec := o.schema.Properties["spec"]
			for _, p := range (place{schema: o.schema}).child("spec", &spec).places() {
				c.place(t, p, rules)
			}
			t.Logf("%d documents: %d refused by both, %d accepted by both", c.refused+c.accepted+c.different, c.refused, c.accepted)
			if c.refused < 50 {
				t.Errorf("only %d documents were refused", c.refused)
			}
		})
	}
	for rule, b := range rules.rules {
		if !b.used {
			t.Errorf("testdata/rules.yaml: no schema has this rule any more: %s", rule)
		}
	}
	for _, d := range known {
		if !d.used {
			t.Errorf("testdata/differences.txt:%d: there is no such difference any more: %s", d.line, d.text)
		}
	}
}

// comparison is the comparison of one kind.
type comparison struct {
	oracle *oracle
	bases  []map[string]any
	known  []*difference

	refused, accepted, different int
}

// sample is the smallest value at a place in the base documents.
func (c *comparison) sample(p place) (sample any, ok bool) {
	size := 0
	for _, base := range c.bases {
		if v, has := valueAt(base, p.path); has && (!ok || len(text(v)) < size) {
			sample, ok, size = v, true, len(text(v))
		}
	}
	return sample, ok
}

// place touches all constraints of a place, in the first base document that has it.
func (c *comparison) place(t *testing.T, p place, rules *ruleBreakers) {
	base := slices.IndexFunc(c.bases, func(base map[string]any) bool {
		_, ok := valueAt(base, p.path)
		return ok
	})
	if base < 0 {
		if !c.differs(p, "field", "here") {
			t.Errorf("%s %v: no base document has it", c.oracle.kind, p)
		}
		return
	}
	for _, change := range p.changes(t, rules, c.sample) {
		edited, where, _ := edit(c.bases[base], p.path, change.apply)
		object := edited.(map[string]any)
		there, here := c.oracle.judge(t, object), analyze(t, object)
		if change.breaks {
			c.onlyThere(t, p, change, strings.TrimPrefix(where, "."), there)
		}
		switch {
		case len(there) > 0 && len(here) > 0:
			c.refused++
		case len(there) == 0 && len(here) == 0:
			c.accepted++
		case change.constraint == "null" && len(there) == 0 && c.absentRefused(t, p, base):
			c.refused++ // null is the same as leaving the field out for both, and it is needed here
		default:
			c.different++
			side, reason := "there", fmt.Sprint(there)
			if len(here) > 0 {
				side, reason = "here", fmt.Sprint(here)
			}
			if !c.differs(p, change.constraint, side) {
				t.Errorf("%s %v, %s: refused only %s: %.300s", c.oracle.kind, p, change.constraint, side, reason)
			}
		}
	}
}

// absentRefused reports whether package api refuses a base document without the value at a place.
func (c *comparison) absentRefused(t *testing.T, p place, base int) bool {
	last := p.path[len(p.path)-1]
	if last == item || last == entry {
		return false
	}
	edited, _, _ := edit(c.bases[base], p.path, constant(absent{}))
	return len(analyze(t, edited.(map[string]any))) > 0
}

// onlyThere demands that an API server refuses a document, and only for the place that was changed.
func (c *comparison) onlyThere(t *testing.T, p place, change change, where string, found field.ErrorList) {
	if len(found) == 0 {
		t.Errorf("%s %v, %s: an API server accepts it", c.oracle.kind, p, change.constraint)
	}
	plain := strings.NewReplacer("[", ".", "]", "") // entries of maps are written as [key] or as .key
	for _, err := range found {
		// Some errors have their field in the text only. A rule of the surroundings may fail to read the changed value.
		unread := strings.Contains(err.Detail, "invalid data") || strings.Contains(err.Detail, "no such key")
		if !unread && !strings.Contains(plain.Replace(err.Error()), plain.Replace(where)) {
			t.Errorf("%s %v, %s: something else is broken as well: %v", c.oracle.kind, p, change.constraint, err)
		}
	}
}

// difference is a line of testdata/differences.txt.
type difference struct {
	line                    int
	text, side              string
	kind, place, constraint *regexp.Regexp
	used                    bool
}

// differs reports whether a difference is known.
func (c *comparison) differs(p place, constraint, side string) bool {
	for _, d := range c.known {
		if d.side == side && d.kind.MatchString(c.oracle.kind) && d.place.MatchString(p.String()) && d.constraint.MatchString(constraint) {
			d.used = true
			return true
		}
	}
	return false
}

func readDifferences(t *testing.T) []*difference {
	t.Helper()
	data, err := os.ReadFile("testdata/differences.txt")
	if err != nil {
		t.Fatal(err)
	}
	pattern := func(s string) *regexp.Regexp {
		return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(s), `\*`, ".*") + "$")
	}
	var out []*difference
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		columns := strings.Split(text, "|")
		for i := range columns {
			columns[i] = strings.TrimSpace(columns[i])
		}
		if len(columns) != 5 || columns[3] != "here" && columns[3] != "there" || columns[4] == "" {
			t.Fatalf("testdata/differences.txt:%d: want kind | field | constraint | here or there | reason", n)
		}
		out = append(out, &difference{
			line: n, text: text, side: columns[3],
			kind: pattern(columns[0]), place: pattern(columns[1]), constraint: pattern(columns[2]),
		})
	}
	return out
}
