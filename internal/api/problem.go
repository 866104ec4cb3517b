package api

import (
	"encoding/hex"
	"strconv"

	"github.com/pilotmesh/pilot/internal/omap"
)

// Severity says what a Problem costs the object it names.
type Severity uint8

// Error means that the object, or its new version, is not used. Warning means that it is used, but not all of it takes
// effect or it likely does not do what was meant.
const (
	Error Severity = iota + 1
	Warning
)

// String is "error" or "warning".
func (s Severity) String() string {
	switch s {
	case Error:
		return "error"
	case Warning:
		return "warning"
	}
	return "severity " + strconv.Itoa(int(s))
}

// Problem is a fact told to the user. It can be an output of a query (query.Output).
type Problem struct {
	// Object is whom it concerns, as far as that is known.
	Object Key
	// Position is where to look.
	Position Position
	Severity Severity
	// Field is the path in the document: spec.http[0].match[1].uri.regex; map keys stand in brackets: spec.labels[app].
	Field string
	// Reason says what is wrong and what to do, without repeating object, position or field.
	Reason string
}

// String is the problem in one line.
func (p Problem) String() string {
	s := p.Severity.String()
	if pos := p.Position.String(); pos != "" {
		s = pos + ": " + s
	}
	if k := p.Object.String(); k != "" {
		s += ": " + k
	}
	if p.Field != "" {
		s += ": " + p.Field
	}
	return s + ": " + p.Reason
}

// ContentHash covers all of the problem.
func (p Problem) ContentHash() omap.Hash {
	b := p.Object.AppendTo(nil)
	for _, s := range []string{p.Position.File, strconv.Itoa(p.Position.Line), p.Field, p.Reason} {
		b = append(b, 0)
		b = append(b, s...)
	}
	return omap.Sum(b, []byte{0, byte(p.Severity)})
}

// OutputName orders problems by object and field, and is the same for equal problems only.
func (p Problem) OutputName() string {
	h := p.ContentHash()
	return p.Object.String() + "|" + p.Field + "|" + hex.EncodeToString(h[:])
}

// Size is 0: problems are not sent to proxies.
func (Problem) Size() int { return 0 }

// Failed reports whether one of the problems is an Error.
func Failed(problems []Problem) bool {
	for _, p := range problems {
		if p.Severity == Error {
			return true
		}
	}
	return false
}
