package main

import (
	"fmt"
	"strings"
)

// mutation is one break. In the list it is a block of lines, ended by an empty one; # begins a comment:
//
//	break: a deleted name stays in the index
//	file: internal/engine/query/groupby.go
//	- 	x.remove(old)
//	+ 	_ = old
//	test: ./internal/engine/query -run Oracle
//
// The lines under - must occur in the file exactly once, one below the other; spaces at their ends do not count. Those
// under + replace them; with none they are cut. What follows test: are the arguments of go test.
type mutation struct {
	at       string // list:line
	what     string
	file     string
	old, new []string
	test     []string
}

// parse reads a list.
func parse(name, text string) ([]mutation, error) {
	var all []mutation
	var m mutation
	end := func() error {
		if m.at == "" {
			return nil
		}
		if m.what == "" || m.file == "" || len(m.old) == 0 || len(m.test) == 0 {
			return fmt.Errorf("%s: a break needs lines that begin with break:, file:, - and test: each", m.at)
		}
		all = append(all, m)
		m = mutation{}
		return nil
	}
	for i, line := range strings.Split(text+"\n", "\n") {
		if line = strings.TrimSpace(line); line == "" {
			if err := end(); err != nil {
				return nil, err
			}
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		if m.at == "" {
			m.at = fmt.Sprintf("%s:%d", name, i+1)
		}
		if !m.field(line) {
			return nil, fmt.Errorf("%s:%d: %q is no line of a break (break:, file:, -, +, test:)", name, i+1, line)
		}
	}
	return all, nil
}

// field takes one line of a block.
func (m *mutation) field(line string) bool {
	if rest, ok := strings.CutPrefix(line, "-"); ok {
		m.old = append(m.old, strings.TrimSpace(rest))
	} else if rest, ok := strings.CutPrefix(line, "+"); ok {
		m.new = append(m.new, strings.TrimSpace(rest))
	} else if rest, ok := strings.CutPrefix(line, "break:"); ok {
		m.what = strings.TrimSpace(rest)
	} else if rest, ok := strings.CutPrefix(line, "file:"); ok {
		m.file = strings.TrimSpace(rest)
	} else if rest, ok := strings.CutPrefix(line, "test:"); ok {
		m.test = strings.Fields(rest)
	} else {
		return false
	}
	return true
}

// apply returns the broken text.
func (m *mutation) apply(src string) (string, error) {
	lines := strings.Split(src, "\n")
	at := -1
	for i := range lines {
		if !m.matches(lines[i:]) {
			continue
		}
		if at >= 0 {
			return "", fmt.Errorf("%q occurs in %s twice (lines %d and %d): add the line above or below it", m.old[0], m.file, at+1, i+1)
		}
		at = i
	}
	if at < 0 {
		return "", fmt.Errorf("%q does not occur in %s any more: bring the list up to date", m.old[0], m.file)
	}
	broken := append([]string{}, lines[:at]...)
	broken = append(broken, m.new...)
	return strings.Join(append(broken, lines[at+len(m.old):]...), "\n"), nil
}

func (m *mutation) matches(lines []string) bool {
	if len(lines) < len(m.old) {
		return false
	}
	for i, old := range m.old {
		if strings.TrimSpace(lines[i]) != old {
			return false
		}
	}
	return true
}
