// Package rules says what configuration must obey beyond its types: the rules of each kind of object, of the mesh
// configuration, and of names and labels. It follows the documentation of Istio's API; where existing meshes live with
// something untidy, it warns and does not refuse.
//
// Three kinds of rules stand apart: names.go judges single texts, shapes.go single fields wherever they occur, and one
// file per kind what fields demand of each other.
//
// The package works on decoded messages and is pure: no goroutines, files or clocks. It must import no package of the
// product but document.
package rules

import (
	"slices"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// About is what the rules know of an object beside its spec.
type About struct {
	Namespace string
	Labels    map[string]string
	// Allocated says that addresses are allocated to a ServiceEntry that names none.
	Allocated bool
	// Distribution is how an annotation wants a service's traffic distributed.
	Distribution string
}

// The functions for the kinds judge the spec of an object. Findings have no lines: a message does not know them.

// ServiceEntry judges a ServiceEntry.
func ServiceEntry(s *networking.ServiceEntry, about About) []document.Finding {
	return judgeSpec(s, about, func(c *checker, at *document.Path) {
		c.serviceEntry(at, s, about)
		c.distribution(about.Distribution)
	})
}

// WorkloadEntry judges a WorkloadEntry.
func WorkloadEntry(s *networking.WorkloadEntry, about About) []document.Finding {
	return judgeSpec(s, about, func(c *checker, at *document.Path) { c.workloadEntry(at, s) })
}

// VirtualService judges a VirtualService.
func VirtualService(s *networking.VirtualService, about About) []document.Finding {
	return judgeSpec(s, about, func(c *checker, at *document.Path) { c.virtualService(at, s) })
}

// DestinationRule judges a DestinationRule.
func DestinationRule(s *networking.DestinationRule, about About) []document.Finding {
	return judgeSpec(s, about, func(c *checker, at *document.Path) { c.destinationRule(at, s) })
}

// Sidecar judges a Sidecar.
func Sidecar(s *networking.Sidecar, about About) []document.Finding {
	return judgeSpec(s, about, func(c *checker, at *document.Path) { c.sidecar(at, s) })
}

// judgeSpec judges a spec by the rules of its kind, then each of its fields by itself.
func judgeSpec(spec proto.Message, about About, ofKind func(c *checker, at *document.Path)) []document.Finding {
	c := checker{namespace: about.Namespace}
	at := (*document.Path)(nil).Field("spec")
	ofKind(&c, at)
	c.shapes(at, spec.ProtoReflect())
	return c.Findings()
}

// checker judges one object.
type checker struct {
	document.Report
	namespace string
}

func (c *checker) fail(p *document.Path, format string, args ...any) { c.Fail(0, p, format, args...) }
func (c *checker) warn(p *document.Path, format string, args ...any) { c.Warn(0, p, format, args...) }

// rule reports the reason a check function gave, if any. It returns whether there was none.
func (c *checker) rule(p *document.Path, reason string) bool {
	if reason != "" {
		c.fail(p, "%s", reason)
	}
	return reason == ""
}

// exportTo judges to whom an object shows itself. nobody says whether "~" is legal.
func (c *checker) exportTo(p *document.Path, names []string, nobody bool) {
	seen := map[string]bool{}
	for i, name := range names {
		at := p.At(i)
		meant := name
		if name == "." {
			meant = c.namespace
		}
		if seen[meant] {
			c.fail(at, "%s is named twice", document.Quote(name))
			continue
		}
		seen[meant] = true
		switch {
		case name == "*" || name == ".":
		case name == "~" && nobody:
		case name == "~":
			c.fail(at, `"~" (nobody) is for ServiceEntries only; write "." for the own namespace`)
		default:
			c.rule(at, Label(name))
		}
	}
	for _, all := range []string{"*", "~"} {
		if i := slices.Index(names, all); i >= 0 && len(names) > 1 {
			c.fail(p, "%q excludes other entries; keep either it or them", all)
			return
		}
	}
}

// port judges a port number that must be there.
func (c *checker) port(p *document.Path, n uint32) { c.rule(p, checkPort(n)) }

// gateways judges names of gateways, "name" or "namespace/name", and reports whether sidecars are among them.
func (c *checker) gateways(p *document.Path, names []string) (mesh bool) {
	for i, name := range names {
		mesh = c.gateway(p.At(i), name) || mesh
	}
	return mesh
}
