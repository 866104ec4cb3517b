// Package check has the checker that the rules of all kinds share: it collects the findings of one object, and checks the parts that objects
// of several kinds have.
//
// The package is pure, as all packages of rules are.
package check

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// Checker checks one object.
type Checker struct {
	// Report has the findings.
	Report document.Report
	// Namespace is the namespace of the object. For the mesh configuration it is the root namespace.
	Namespace string
}

// Fail adds an error.
func (c *Checker) Fail(p *document.Path, format string, args ...any) {
	c.Report.Fail(0, p, format, args...)
}

// Warn adds a warning.
func (c *Checker) Warn(p *document.Path, format string, args ...any) {
	c.Report.Warn(0, p, format, args...)
}

// Rule adds an error if a check function returned a reason. It returns whether there was no reason.
func (c *Checker) Rule(p *document.Path, reason string) bool {
	if reason != "" {
		c.Fail(p, "%s", reason)
	}
	return reason == ""
}

// ExportTo checks a list of namespaces that see an object. "~" is valid if none is true.
func (c *Checker) ExportTo(p *document.Path, names []string, none bool) {
	seen := map[string]bool{}
	for i, name := range names {
		at := p.At(i)
		meant := name
		if name == "." {
			meant = c.Namespace
		}
		if seen[meant] {
			c.Fail(at, "%s is named twice", document.Quote(name))
			continue
		}
		seen[meant] = true
		switch {
		case name == "*" || name == ".":
		case name == "~" && none:
		case name == "~":
			c.Fail(at, `"~" (no namespace) is for ServiceEntries only; write "." for the own namespace`)
		default:
			c.Rule(at, syntax.Name(name))
		}
	}
	for _, all := range []string{"*", "~"} {
		if i := slices.Index(names, all); i >= 0 && len(names) > 1 {
			c.Fail(p, "%q excludes other entries; keep either it or them", all)
			return
		}
	}
}

// Port checks a required port number.
func (c *Checker) Port(p *document.Path, n uint32) { c.Rule(p, syntax.Port(n)) }

// AtMostBytes refuses a text that is longer than Envoy takes. It rejects a whole resource for one, so all that belongs to the resource stays as it
// was.
func (c *Checker) AtMostBytes(p *document.Path, text string, limit int) {
	if len(text) > limit {
		c.Fail(p, "Envoy takes at most %d bytes, and this value has %d; shorten it", limit, len(text))
	}
}
