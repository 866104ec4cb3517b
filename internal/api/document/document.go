// Package document reads configuration documents strictly: the text of a file becomes documents, a document becomes a
// tree of values with line numbers, and the tree becomes a protobuf message. What does not fit is a Finding with its
// line and its field.
//
// Invariants:
//   - Nothing panics or takes more than bounded time and memory, whatever the text: the size of a document, its depth
//     and the expansion of its aliases are limited.
//   - Documents of a file are cut before they are parsed, so a syntax error costs one document.
//   - One pass finds every mistake of a document, not only the first.
//
// The package knows YAML, JSON and protobuf's reflection, but no kind of object. It is pure: no goroutines, files or
// clocks. Of the product it must import nothing but package spelling.
package document

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/spelling"
)

// MaxFindings bounds what is said about one document.
const MaxFindings = 50

// Finding is one thing that is wrong with a document.
type Finding struct {
	// Warning says that the document can be used nevertheless.
	Warning bool
	// Line is that of the file, 0 if it is not known.
	Line int
	// Field is the path, like spec.http[0].match[1].headers[x-user].
	Field string
	// Reason says what is wrong and what to do.
	Reason string
}

// Report collects findings. The zero Report is empty.
type Report struct {
	findings []Finding
	failed   bool
}

// Fail adds a mistake.
func (r *Report) Fail(line int, p *Path, format string, args ...any) {
	r.failed = true
	r.add(false, line, p, format, args)
}

// Warn adds something that is legal but likely not meant, or ignored.
func (r *Report) Warn(line int, p *Path, format string, args ...any) {
	r.add(true, line, p, format, args)
}

func (r *Report) add(warning bool, line int, p *Path, format string, args []any) {
	switch n := len(r.findings); {
	case n < MaxFindings:
		r.findings = append(r.findings, Finding{warning, line, p.String(), fmt.Sprintf(format, args...)})
	case n == MaxFindings:
		r.findings = append(r.findings, Finding{warning, line, "", "there is more; correct the above first"})
	case !warning: // a mistake behind the limit must still count as one
		r.findings[MaxFindings].Warning = false
	}
}

// Add adds the findings of another report.
func (r *Report) Add(findings []Finding) {
	for _, f := range findings {
		r.failed = r.failed || !f.Warning
	}
	r.findings = append(r.findings, findings...)
}

// Failed reports whether there are mistakes.
func (r *Report) Failed() bool { return r.failed }

// Findings returns what was collected, in the order in which it was found.
func (r *Report) Findings() []Finding { return r.findings }

// Quote quotes a user's text for a message, and shortens it.
func Quote(s string) string {
	const most = 64
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

// Closest returns the name that a misspelt one most likely means, "" if none is near. Near are names at a small edit
// distance, and longer names whose first words are the whole of the wrong one.
func Closest(wrong string, names []string) string {
	best, bound := "", max(1, len(wrong)/3)+1
	for _, name := range names {
		if d := spelling.Distance(strings.ToLower(wrong), strings.ToLower(name), bound); d < bound {
			best, bound = name, d
		}
	}
	if best != "" || wrong == "" {
		return best
	}
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, wrong); ok && 'A' <= rest[0] && rest[0] <= 'Z' {
			return name
		}
	}
	return ""
}

// Unknown is what to say of an unknown name where some are known.
func Unknown(what, wrong string, names []string) string {
	if name := Closest(wrong, names); name != "" {
		return fmt.Sprintf("unknown %s; did you mean %s?", what, name)
	}
	return "unknown " + what
}
