package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// gap is a line of gaps.txt: a case that is known to fail, or an area (its name ends in "/") that is not judged yet.
type gap struct {
	line    int
	name    string
	variant string // delta, sotw or both
	reason  string
}

// gaps are the lines of gaps.txt.
type gaps struct {
	path string
	list []gap
}

// readGaps reads a list whose lines are `area/case delta|sotw|both reason`; "#" begins a comment line.
func readGaps(path string) (gaps, error) {
	g := gaps{path: path}
	text, err := os.ReadFile(path)
	if err != nil {
		return g, err
	}
	for i, l := range strings.Split(string(text), "\n") {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		f := strings.Fields(l)
		if len(f) < 3 || !slices.Contains([]string{"delta", "sotw", both}, f[1]) || !strings.Contains(f[0], "/") {
			return g, fmt.Errorf("%s:%d: want `area/case delta|sotw|both reason`, or `area/ …` for all of an area", path, i+1)
		}
		if old := g.find(f[0], f[1]); old != nil || f[1] == both && (g.find(f[0], "delta") != nil || g.find(f[0], "sotw") != nil) {
			return g, fmt.Errorf("%s:%d: %s is listed twice", path, i+1, f[0])
		}
		g.list = append(g.list, gap{i + 1, f[0], f[1], strings.Join(f[2:], " ")})
	}
	return g, nil
}

// find returns the line of a case or area for a variant, or nil.
func (g *gaps) find(name, variant string) *gap {
	i := slices.IndexFunc(g.list, func(l gap) bool { return l.name == name && (l.variant == both || l.variant == variant) })
	if i < 0 {
		return nil
	}
	return &g.list[i]
}

// unjudged returns the line of a case's area, or nil.
func (g *gaps) unjudged(area, variant string) *gap { return g.find(area+"/", variant) }

// closed rewrites the list without what a run found to pass: the cases by name, with the variants that pass.
func (g *gaps) closed(passing map[string][]string) error {
	text, err := os.ReadFile(g.path)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	for _, l := range slices.Backward(g.list) {
		at, pass := l.line-1, passing[l.name]
		switch {
		case len(pass) == 0 || l.variant != both && !slices.Contains(pass, l.variant):
		case l.variant == both && len(pass) == 1:
			rest := "sotw"
			if pass[0] == "sotw" {
				rest = "delta"
			}
			lines[at] = strings.Replace(lines[at], " both ", " "+rest+" ", 1)
		default:
			lines = slices.Delete(lines, at, at+1)
		}
	}
	return os.WriteFile(g.path, []byte(strings.Join(lines, "\n")), 0o644)
}

// unknown returns an error if a line names none of the cases.
func (g *gaps) unknown(names []string) error {
	for _, l := range g.list {
		if !slices.ContainsFunc(names, func(n string) bool {
			return n == l.name || strings.HasSuffix(l.name, "/") && strings.HasPrefix(n, l.name)
		}) {
			return fmt.Errorf("%s:%d: there is no case %s: remove the line", g.path, l.line, l.name)
		}
	}
	return nil
}
