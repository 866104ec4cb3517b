package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/exam/observation"
)

func TestGaps(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"good":       {"# why\n\nscope/ both later\nhttp/a delta a reason of words\nhttp/a sotw another\n", ""},
		"no reason":  {"http/a delta\n", ":1: want `area/case"},
		"no variant": {"http/a never because\n", ":1: want `area/case"},
		"twice":      {"http/a both one\nhttp/a delta two\n", ":2: http/a is listed twice"},
		"over both":  {"http/a delta one\nhttp/a both two\n", ":2: http/a is listed twice"},
		"unknown":    {"\nhttp/b both gone\n", ":2: there is no case http/b"},
		"no area":    {"htp/ both gone\n", ":1: there is no case htp/"},
	} {
		path := filepath.Join(t.TempDir(), "gaps.txt")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		g, err := readGaps(path)
		if err == nil {
			err = g.unknown([]string{"http/a", "scope/x"})
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestClosedGaps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gaps.txt")
	const text = "# why\n\nscope/ both later\nhttp/a both  one\nhttp/b both  two\nhttp/c sotw  three\nhttp/d delta four\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := readGaps(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.closed(map[string][]string{"http/a": {"delta", "sotw"}, "http/b": {"delta"}, "http/c": {"delta"}, "http/d": {"delta"}}); err != nil {
		t.Fatal(err)
	}
	const want = "# why\n\nscope/ both later\nhttp/b sotw  two\nhttp/c sotw  three\n"
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("the list is now\n%s(%v), want\n%s", got, err, want)
	}
}

func TestSheet(t *testing.T) {
	pass, fail := observation.Verdict{Pass: true, Requests: 2, Passed: 2}, observation.Verdict{Why: "want 200 – got 404", Requests: 2, Passed: 1}
	s := sheet{grades: []grade{
		{Case: "http/ok", Variant: "delta", Area: "http", Verdict: pass},
		{Case: "http/bad", Variant: "delta", Area: "http", Verdict: fail},
		{Case: "http/bad", Variant: "sotw", Area: "http", Verdict: fail},
		{Case: "http/known", Variant: "delta", Area: "http", Verdict: fail, Gap: "later"},
		{Case: "http/closed", Variant: "sotw", Area: "http", Verdict: pass, Gap: "later", list: "gaps.txt:3"},
		{Case: "scope/x", Variant: "delta", Area: "scope", Verdict: fail, Unjudged: true},
		{Case: "scope/y", Variant: "delta", Area: "scope", Verdict: pass, Unjudged: true},
	}}
	if r := s.result(); r.Passed != 1 || r.Failed != 3 || len(r.Skipped) != 1 || r.Skipped[0] != "http/known (delta): later" {
		t.Errorf("result = %d passed, %d failed, skipped %q; want 1, 3 and the known gap", r.Passed, r.Failed, r.Skipped)
	}
	if got, want := s.progress(), "2 ok  1 gap  1 lacks  3 FAIL  "; got != want {
		t.Errorf("progress = %q, want %q", got, want)
	}
	var out strings.Builder
	s.print(&out)
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"Failures: FAIL http/bad both want 200 – got 404 FAIL http/closed sotw passes now: remove the line from gaps.txt:3 (later)",
		"gap http/known delta want 200", "lacks scope/x delta", "http delta 1 / 3 4 / 6 0", "http sotw 1 / 2 3 / 4 0", "~all delta 2 / 5",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the sheet lacks %q:\n%s", want, out.String())
		}
	}
}
