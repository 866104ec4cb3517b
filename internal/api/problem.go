package api

import (
	"encoding/hex"
	"strconv"

	"github.com/pilotmesh/pilot/internal/api/code"
	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// Severity is whether the object of a Problem is used.
type Severity uint8

// Error means that the object, or its new version, is not used. Warning means that it is used, but that a part of it has no
// effect, or probably another effect than intended. Info means that nothing is wrong.
const (
	Error Severity = iota + 1
	Warning
	Info
)

// String returns "error", "warning" or "info".
func (s Severity) String() string {
	switch s {
	case Error:
		return "error"
	case Warning:
		return "warning"
	case Info:
		return "info"
	}
	return "severity " + strconv.Itoa(int(s))
}

// Problem informs users of a mistake in an object. It can be an output of a query (query.Output).
type Problem struct {
	// Object is the key of the object. Parts that are not known are empty.
	Object Key
	// Position is the place of the field, or of the object.
	Position Position
	Severity Severity
	// Code identifies the kind of problem; package code lists them.
	Code code.Code
	// Field is the path in the document: spec.http[0].match[1].uri.regex; map keys are in brackets: spec.labels[app].
	Field string
	// Reason explains the problem and how to correct it. It does not repeat the object, position or field.
	Reason string
	// Conflict is true if another object, or the same one in another source, goes before this one.
	Conflict bool
}

// Refuses reports whether the problem is why the present version of its object is not used. Sources refuse objects, with their
// position; problems of queries have no position.
func (p Problem) Refuses() bool { return p.Severity == Error && p.Position.File != "" }

// String returns the problem as one line of text.
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

// ContentHash covers all fields.
func (p Problem) ContentHash() omap.Hash {
	b := p.Object.AppendTo(nil)
	for _, s := range []string{p.Position.File, strconv.Itoa(p.Position.Line), strconv.FormatInt(p.Position.Generation, 10), p.Field, p.Reason, string(p.Code)} {
		b = append(b, 0)
		b = append(b, s...)
	}
	if p.Conflict {
		b = append(b, 0)
	}
	return omap.Sum(b, []byte{0, byte(p.Severity)})
}

// OutputName is unique to the problem. Names sort by object, then by field.
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
