package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/pilotmesh/pilot/test/exam/observation"
)

// grade is the verdict of one case over one variant, and whether it was expected.
type grade struct {
	Case    string   `json:"case"`
	Variant string   `json:"variant"`
	Area    string   `json:"area"`
	Tags    []string `json:"tags,omitempty"`
	observation.Verdict
	Gap      string `json:"gap,omitempty"`      // why it is known to fail
	Unjudged bool   `json:"unjudged,omitempty"` // its area does not count yet
	Again    bool   `json:"again,omitempty"`    // it ran twice
	First    string `json:"first,omitempty"`    // why it failed at first, if it passed then
	list     string // file and line of the gap
}

// failed reports whether the case is not as it should be: a known gap should fail.
func (g *grade) failed() bool { return !g.Unjudged && g.Pass == (g.Gap != "") }

// mark is the grade in a word.
func (g *grade) mark() string {
	switch {
	case g.Unjudged && !g.Pass:
		return "lacks"
	case g.failed():
		return "FAIL"
	case g.Gap != "":
		return "gap"
	}
	return "ok"
}

// note describes the failure, or is empty.
func (g *grade) note() string {
	if g.failed() && g.Pass {
		return fmt.Sprintf("passes now: remove the line from %s (%s)", g.list, g.Gap)
	}
	return g.Why
}

// sheet holds the grades of a run.
type sheet struct{ grades []grade }

// close takes known gaps that pass as passing, and returns them: the variants by case.
func (s *sheet) close() map[string][]string {
	passing := map[string][]string{}
	for i := range s.grades {
		if g := &s.grades[i]; g.Pass && g.Gap != "" {
			passing[g.Case] = append(passing[g.Case], g.Variant)
			g.Gap = ""
		}
	}
	return passing
}

// progress counts the finished cases.
func (s *sheet) progress() string {
	count := map[string]int{}
	for _, g := range s.grades {
		count[g.mark()]++
	}
	text := ""
	for _, m := range []string{"ok", "gap", "lacks", "FAIL"} {
		if n := count[m]; n > 0 {
			text += fmt.Sprintf("%d %s  ", n, m)
		}
	}
	return text
}

func (s *sheet) result() *result {
	r := &result{Skipped: []string{}, Cases: s.grades}
	for _, g := range s.grades {
		switch {
		case g.Unjudged:
		case g.failed():
			r.Failed++
		case g.Gap != "":
			r.Skipped = append(r.Skipped, fmt.Sprintf("%s (%s): %s", g.Case, g.Variant, g.Gap))
		default:
			r.Passed++
		}
	}
	return r
}

// score adds grades up.
type score struct{ cases, passed, requests, requestsPassed, rejected int }

func (s *score) add(g *grade) {
	s.cases++
	if g.Pass {
		s.passed++
	}
	s.requests += g.Requests
	s.requestsPassed += g.Passed
	s.rejected += g.Rejected
}

// lines describe the grades of a mark; a text that both variants share is written once.
func (s *sheet) lines(mark string) []string {
	said := map[[2]string]int{}
	var lines []string
	for i := range s.grades {
		g := &s.grades[i]
		if g.mark() != mark {
			continue
		}
		key := [2]string{g.Case, g.note()}
		variant := g.Variant
		at, twice := said[key]
		if twice {
			variant = both
		} else {
			at = len(lines)
			lines, said[key] = append(lines, ""), at
		}
		lines[at] = fmt.Sprintf("%-5s %-40s %-5s  %s", mark, g.Case, variant, g.note())
	}
	return lines
}

// print writes the failures, the known failures, and the score by area and variant.
func (s *sheet) print(w io.Writer) {
	slices.SortStableFunc(s.grades, func(a, b grade) int {
		return cmp.Or(cmp.Compare(a.Area, b.Area), cmp.Compare(a.Case, b.Case), cmp.Compare(a.Variant, b.Variant))
	})
	for _, m := range []string{"lacks", "gap", "FAIL"} {
		heading := map[string]string{
			"lacks": "Not judged yet:", "gap": "Known gaps (test/exam/gaps.txt):", "FAIL": "Failures:",
		}[m]
		for _, l := range s.lines(m) {
			if heading != "" {
				fmt.Fprintf(w, "\n%s\n", heading)
				heading = ""
			}
			fmt.Fprintln(w, l)
		}
	}
	for _, g := range s.grades {
		if g.First != "" {
			fmt.Fprintf(w, "unsteady: %s over %s passed only when alone; before: %s\n", g.Case, g.Variant, g.First)
		}
	}
	scores := map[string]*score{}
	for i := range s.grades {
		g := &s.grades[i]
		for _, k := range []string{fmt.Sprintf("%-10s %-5s", g.Area, g.Variant), fmt.Sprintf("%-10s %-5s", "~all", g.Variant)} {
			if scores[k] == nil {
				scores[k] = &score{}
			}
			scores[k].add(g)
		}
	}
	fmt.Fprintf(w, "\n%-16s %13s %15s %9s\n", "area", "cases", "requests", "rejected")
	for _, k := range slices.Sorted(maps.Keys(scores)) {
		sc := scores[k]
		fmt.Fprintf(w, "%s %5d / %-5d %6d / %-6d %9d\n", k, sc.passed, sc.cases, sc.requestsPassed, sc.requests, sc.rejected)
	}
}
