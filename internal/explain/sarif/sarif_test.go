package sarif_test

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/code"
	"github.com/pilotmesh/pilot/internal/explain/sarif"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// found are problems with and without a position, an object and a field, and two of one field.
func found() []api.Problem {
	reviews := api.Key{Kind: "VirtualService", Namespace: "shop", Name: "reviews"}
	at := api.Position{File: "mesh/all routes.yaml", Line: 8, Column: 15}
	return []api.Problem{
		{Object: reviews, Position: at, Severity: api.Error, Code: "route-no-host", Field: "spec.http[0].route[0].destination.host", Reason: `there is no service "revews"`},
		{Object: reviews, Position: at, Severity: api.Warning, Code: "route-overruled", Field: "spec.hosts[0]", Reason: "another goes first"},
		{Object: reviews, Position: at, Severity: api.Warning, Code: "route-overruled", Field: "spec.hosts[0]", Reason: "a third goes first"},
		{Object: reviews, Severity: api.Error, Code: "object-unsealed", Reason: "it has no file"},
		{Position: api.Position{File: "/etc/mesh/package.json"}, Severity: api.Info, Code: "file-no-object", Reason: "it has no objects"},
	}
}

// TestLog compares the results and the rules that they use with the golden file.
func TestLog(t *testing.T) {
	const file = "testdata/log.json"
	log := sarif.New("1.2.3", found())
	driver := &log.Runs[0].Tool.Driver
	if len(driver.Rules) != len(code.All()) {
		t.Errorf("the log has %d rules for %d codes", len(driver.Rules), len(code.All()))
	}
	used := func(r sarif.Rule) bool {
		return !slices.ContainsFunc(log.Runs[0].Results, func(one sarif.Result) bool { return one.RuleID == r.ID })
	}
	driver.Rules = slices.DeleteFunc(driver.Rules, used)
	got, err := json.MarshalIndent(log, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != string(got) {
		t.Errorf("the log differs from %s (%v); run with -update if that is meant:\n%s", file, err, got)
	}
}

// TestFingerprints: a fingerprint stays when lines and texts change, and no two results have the same.
func TestFingerprints(t *testing.T) {
	prints := func(change func(*api.Problem)) (list []string) {
		problems := found()
		for i := range problems {
			change(&problems[i])
		}
		for _, r := range sarif.New("", problems).Runs[0].Results {
			list = append(list, r.Fingerprints["problem/v1"])
		}
		return list
	}
	was := prints(func(*api.Problem) {})
	if sorted := slices.Sorted(slices.Values(was)); len(slices.Compact(sorted)) != len(was) {
		t.Errorf("two results have one fingerprint: %q", was)
	}
	if moved := prints(func(p *api.Problem) { p.Position.Line, p.Reason = p.Position.Line+1, "in other words" }); !slices.Equal(was, moved) {
		t.Errorf("fingerprints depend on lines or texts: %q, then %q", was, moved)
	}
	if other := prints(func(p *api.Problem) { p.Object.Name, p.Position.File = "x", "x" }); slices.ContainsFunc(other, func(one string) bool { return slices.Contains(was, one) }) {
		t.Errorf("fingerprints do not depend on the object or the file: %q, then %q", was, other)
	}
}

// needs are the members that the schema of SARIF 2.1.0 requires, by the path of their object, where [] is each element of a list.
var needs = map[string][]string{
	"":                            {"version", "runs"},
	".runs[]":                     {"tool"},
	".runs[].tool":                {"driver"},
	".runs[].tool.driver":         {"name"},
	".runs[].tool.driver.rules[]": {"id"},
	".runs[].results[]":           {"message"},
	".runs[].results[].message":   {"text"},
	".runs[].tool.driver.rules[].shortDescription": {"text"},
	".runs[].tool.driver.rules[].help":             {"text"},
}

// levels are the values that the schema permits for a level.
var levels = []string{"none", "note", "warning", "error"}

// TestSchema: a log has what the schema requires, and its results refer to their rules.
func TestSchema(t *testing.T) {
	text, err := json.Marshal(sarif.New("1.2.3", found()))
	if err != nil {
		t.Fatal(err)
	}
	var log any
	if err := json.Unmarshal(text, &log); err != nil {
		t.Fatal(err)
	}
	met := map[string]bool{}
	walk(t, "", log, met)
	for path := range needs {
		if !met[path] {
			t.Errorf("the log has no %q", path)
		}
	}
	run := sarif.New("", found()).Runs[0]
	for _, r := range run.Results {
		if run.Tool.Driver.Rules[r.RuleIndex].ID != r.RuleID {
			t.Errorf("the rule of %s is %s", r.RuleID, run.Tool.Driver.Rules[r.RuleIndex].ID)
		}
	}
	if empty, err := json.Marshal(sarif.New("", nil).Runs[0].Results); err != nil || string(empty) != "[]" {
		t.Errorf("no problems are %s, want an empty list, which means that all was checked", empty)
	}
}

func walk(t *testing.T, path string, v any, met map[string]bool) {
	t.Helper()
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			walk(t, path+"[]", one, met)
		}
	case map[string]any:
		met[path] = true
		for _, name := range needs[path] {
			if v[name] == nil || v[name] == "" {
				t.Errorf("%q has no %s: %v", path, name, v)
			}
		}
		if level, ok := v["level"].(string); ok && !slices.Contains(levels, level) {
			t.Errorf("%q has the level %q", path, level)
		}
		if line, ok := v["startLine"].(float64); ok && line < 1 {
			t.Errorf("%q begins at line %v", path, line)
		}
		for name, one := range v {
			walk(t, path+"."+name, one, met)
		}
	}
}
