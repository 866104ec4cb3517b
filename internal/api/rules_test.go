package api

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ruleCase is a line of a table in testdata/rules.
type ruleCase struct {
	place, rule, verdict, field, spec, reason string
}

// TestRules checks each rule with documents that comply and documents that do not. A table in testdata/rules is about one kind. Its lines are
//
//	apiVersion: VERSION            the version of the documents
//	$NAME = TEXT                   an abbreviation for the lines behind it
//	RULE VERDICT FIELD SPEC        a spec, in the flow style of YAML, and the finding
//
// VERDICT is accept, warn or reject. FIELD is where, with - for anywhere. Text behind " # " is a part of the reason. A spec that
// begins with "metadata:" is followed by a comma and the rest of the document.
func TestRules(t *testing.T) {
	files, err := filepath.Glob("testdata/rules/*.txt")
	if err != nil || len(files) != 17 {
		t.Fatalf("found %d tables, want 17 (%v)", len(files), err)
	}
	for _, file := range files {
		kind := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(kind, func(t *testing.T) {
			version, cases := readRules(t, file)
			sides := map[string]map[string]bool{}
			for _, c := range cases {
				checkRule(t, kind, version, c)
				if sides[c.rule] == nil {
					sides[c.rule] = map[string]bool{}
				}
				sides[c.rule][c.verdict] = true
			}
			for rule, verdicts := range sides {
				if len(verdicts) < 2 {
					t.Errorf("the rule %s has documents on one side only", rule)
				}
			}
		})
	}
}

func readRules(t *testing.T, file string) (version string, cases []ruleCase) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var names []string // pairs for a Replacer
	for lines, n := bufio.NewScanner(f), 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if text, ok := strings.CutPrefix(line, "apiVersion: "); ok {
			version = text
			continue
		}
		if name, text, ok := strings.Cut(line, " = "); ok && strings.HasPrefix(line, "$") {
			names = append([]string{name, strings.NewReplacer(names...).Replace(text)}, names...)
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		line, reason, _ := strings.Cut(line, " # ")
		words := strings.SplitN(line, " ", 4)
		if len(words) != 4 {
			t.Fatalf("%s:%d: want rule, verdict, field and spec", file, n)
		}
		spec := strings.NewReplacer(names...).Replace(words[3])
		cases = append(cases, ruleCase{fmt.Sprintf("%s:%d", file, n), words[0], words[1], words[2], spec, reason})
	}
	return version, cases
}

func checkRule(t *testing.T, kind, version string, c ruleCase) {
	t.Helper()
	data := c.spec
	if version != "" {
		rest := "metadata: {name: a, namespace: attic}, spec: " + c.spec
		if strings.HasPrefix(c.spec, "metadata:") {
			rest = c.spec
		}
		data = fmt.Sprintf("{apiVersion: %s, kind: %s, %s}", version, kind, rest)
	}
	got, problems := judge(strings.ToLower(kind), "a.yaml", []byte(data))
	if got != c.verdict {
		t.Errorf("%s: %s, want %s: %s\n%v", c.place, got, c.verdict, data, problems)
		return
	}
	if got == "accept" {
		return
	}
	if !slices.ContainsFunc(problems, func(p Problem) bool {
		return (c.field == "-" || p.Field == c.field || p.Field == "spec."+c.field) && strings.Contains(p.Reason, c.reason) && p.Position.Line > 0
	}) {
		t.Errorf("%s: no problem of %s with %q: %s\n%v", c.place, c.field, c.reason, data, problems)
	}
}
