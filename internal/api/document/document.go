// Package document parses configuration documents. It splits a file into documents, parses each into a tree of values with line
// numbers, and reads the tree into a protobuf message. Each mistake is a Finding with its line and field.
//
// Invariants:
//   - No text makes the package panic. The size and depth of a document and the expansion of its aliases are limited, so time and
//     memory are bounded.
//   - A file is split before its documents are parsed, so a syntax error affects one document only.
//   - Reading finds all mistakes of a document, not only the first.
//
// The package handles YAML, JSON and protobuf reflection, and knows no kinds of objects. It is pure: it has no goroutines, reads no
// files and no clock.
package document

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/api/code"
	"github.com/pilotmesh/pilot/internal/api/spelling"
)

// MaxFindings is the maximum number of findings about one document.
const MaxFindings = 50

// Finding is one mistake in a document.
type Finding struct {
	// Warning is true if the document can be used nevertheless.
	Warning bool
	// Line is the line of the file, from 1; 0 if it is not known.
	Line int
	// Field is the path, like spec.http[0].match[1].headers[x-user].
	Field string
	// Reason explains the mistake and how to correct it.
	Reason string
	// Code is the kind of finding. Empty means field-invalid, or field-ineffective in a warning.
	Code code.Code
}

// Report collects findings. The zero Report is empty.
type Report struct {
	findings []Finding
	failed   bool
}

// Mark sets the code of the last finding.
func (r *Report) Mark(c code.Code) {
	if n := len(r.findings); n > 0 && n <= MaxFindings {
		r.findings[n-1].Code = c
	}
}

// Fail adds a finding that makes the document unusable.
func (r *Report) Fail(line int, p *Path, format string, args ...any) {
	r.failed = true
	r.add(false, line, p, format, args)
}

// Warn adds a finding about something valid that is ignored, or probably unintended.
func (r *Report) Warn(line int, p *Path, format string, args ...any) {
	r.add(true, line, p, format, args)
}

func (r *Report) add(warning bool, line int, p *Path, format string, args []any) {
	switch n := len(r.findings); {
	case n < MaxFindings:
		r.findings = append(r.findings, Finding{Warning: warning, Line: line, Field: p.String(), Reason: fmt.Sprintf(format, args...)})
	case n == MaxFindings:
		r.findings = append(r.findings, Finding{Warning: warning, Line: line, Reason: "there is more; correct the above first"})
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

// Failed reports whether there are findings other than warnings.
func (r *Report) Failed() bool { return r.failed }

// Findings returns the findings in the order in which they were added.
func (r *Report) Findings() []Finding { return r.findings }

// Quote quotes a user's text for a message, and shortens it.
func Quote(s string) string {
	const most = 64
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

// closest returns the known name that is most similar to a misspelt one; "" if none is similar. Similar names have a small edit
// distance, or begin with the words of the misspelt name.
func closest(wrong string, names []string) string {
	best := spelling.Closest(wrong, names)
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

// Unknown returns the text of a finding about an unknown name.
func Unknown(what, wrong string, names []string) string {
	if name := closest(wrong, names); name != "" {
		return fmt.Sprintf("unknown %s; did you mean %s?", what, name)
	}
	return "unknown " + what
}
