// Package rules validates decoded messages: the specs of all kinds of objects. The rules come from the documentation of Istio's API. Where
// existing meshes commonly violate a rule without harm, the package warns instead of refusing the object.
//
// The rules are in four groups: package syntax checks single texts, package shape checks single fields wherever their message occurs,
// package presence checks fields that are written without content, and one file per kind checks how fields depend on each other. The
// last group uses the checker in package check. Its rules of traffic policies are in package traffic, and the rules of the mesh
// configuration, which is no object, are in package settings.
//
// The package is pure: it has no goroutines, reads no files and no clock.
package rules

import (
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/check"
	"github.com/pilotmesh/pilot/internal/api/rules/shape"
	"github.com/pilotmesh/pilot/internal/api/rules/traffic"
)

// About is the part of an object outside its spec that the rules depend on.
type About struct {
	Name, Namespace string
	Labels          map[string]string
	// Allocated is true if addresses are allocated to a ServiceEntry that has none in its spec.
	Allocated bool
	// Distribution is the value of the annotation for traffic distribution.
	Distribution string
	// DryRun is the value of the annotation for dry runs; nil if the object does not have it.
	DryRun *string
}

// The functions for the kinds check the spec of an object. Findings have no lines: a message does not know them.

// ServiceEntry checks a ServiceEntry.
func ServiceEntry(s *networking.ServiceEntry, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) {
		c.serviceEntry(at, s, about)
		c.distribution(about.Distribution)
	})
}

// WorkloadEntry checks a WorkloadEntry.
func WorkloadEntry(s *networking.WorkloadEntry, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) { c.workloadEntry(at, s) })
}

// WorkloadGroup checks a WorkloadGroup.
func WorkloadGroup(s *networking.WorkloadGroup, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) { c.workloadGroup(at, s) })
}

// VirtualService checks a VirtualService.
func VirtualService(s *networking.VirtualService, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) { c.virtualService(at, s) })
}

// DestinationRule checks a DestinationRule.
func DestinationRule(s *networking.DestinationRule, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) { traffic.DestinationRule(c.Checker, at, s) })
}

// Sidecar checks a Sidecar.
func Sidecar(s *networking.Sidecar, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) { c.sidecar(at, s) })
}

// checkSpec checks a spec by the rules of its kind, then each of its fields by itself.
func checkSpec(spec proto.Message, about About, ofKind func(c *checker, at *document.Path)) []document.Finding {
	c := checker{&check.Checker{Namespace: about.Namespace}}
	at := (*document.Path)(nil).Field("spec")
	c.dryRun(spec, about.DryRun)
	ofKind(&c, at)
	shape.Check(&c.Report, at, spec.ProtoReflect())
	return c.Report.Findings()
}

// checker checks one object.
type checker struct{ *check.Checker }

// gateways checks names of gateways, "name" or "namespace/name", and reports whether sidecars are among them.
func (c *checker) gateways(p *document.Path, names []string) (mesh bool) {
	for i, name := range names {
		mesh = c.gateway(p.At(i), name) || mesh
	}
	return mesh
}
