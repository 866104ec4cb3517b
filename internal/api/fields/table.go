// Package fields decides which fields of the API the product acts on, and warns of others that are set.
//
// The package owns the table of fields (supported.go and its continuations). Every function is pure, and the package starts no goroutines.
package fields

import (
	"strings"
	"sync"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// field is a node in the tree of the fields of a kind, which is parsed from supportedFields and its continuations.
type field struct {
	// listed is true if the field has its own line, so it has no children.
	listed bool
	// refused is true if the product does not act on the field.
	refused bool
	// client, gateway, selected, http, http2 and tcp restrict where the product acts on the field. server is true if the fields beneath it
	// are about connections to the application. See supportedFields.
	client, gateway, selected, http, http2, tcp, server bool
	// values are the supported values, separated by "|"; empty if all are supported.
	values string
	// advice is what to do instead.
	advice string
	// shape is the name of the section that the children come from; empty if they have lines of their own.
	shape    string
	children map[string]*field
}

// supported returns the trees of supportedFields by kind. Fields with the same shape share their children.
var supported = sync.OnceValue(func() map[string]*field { return parseFields(Table()) })

// Table returns the table of fields as supportedFields describes it: a section for each kind and each shape.
func Table() string { return supportedFields + supportedFilterFields + supportedMeshFields }

func parseFields(table string) map[string]*field {
	kinds := map[string]*field{}
	var kind *field
	for line := range strings.Lines(table) {
		words, advice, _ := strings.Cut(line, ": ")
		list := strings.Fields(words)
		switch {
		case len(list) == 0:
			continue
		case line[0] != '\t':
			kind = &field{}
			kinds[list[0]] = kind
			kind.narrow(list[1:], "")
			continue
		}
		f := kind
		for name := range strings.SplitSeq(list[0], ".") {
			f = f.child(name)
		}
		f.listed = true
		f.narrow(list[1:], strings.TrimSpace(advice))
	}
	for _, f := range kinds {
		f.complete(kinds)
	}
	for name := range kinds {
		if isShape(name) {
			delete(kinds, name)
		}
	}
	return kinds
}

func (f *field) child(name string) *field {
	if f.children == nil {
		f.children = map[string]*field{}
	}
	if f.children[name] == nil {
		f.children[name] = &field{}
	}
	return f.children[name]
}

// narrow applies the words that follow the field in its line.
func (f *field) narrow(words []string, advice string) {
	f.advice = advice
	for _, word := range words {
		switch word {
		case "no":
			f.refused = true
		case "client":
			f.client = true
		case "server":
			f.server = true
		case "gateway":
			f.gateway = true
		case "selected":
			f.selected = true
		case "http":
			f.http = true
		case "http2":
			f.http2 = true
		case "tcp":
			f.tcp = true
		default:
			f.values = word
		}
	}
}

// isShape reports whether a section of the table holds fields that occur in several places.
func isShape(name string) bool { return 'a' <= name[0] && name[0] <= 'z' }

// complete replaces names of shapes by the fields of these shapes.
func (f *field) complete(sections map[string]*field) {
	if shape := sections[f.values]; shape != nil {
		f.listed, f.shape, f.values, f.children = false, f.values, "", shape.children
	}
	for _, child := range f.children {
		child.complete(sections)
	}
}

// Scope is where a policy takes effect.
type Scope struct {
	// Server is true for connections of a sidecar to its application, and false for connections of a client to a service.
	Server bool
	// Ports are the ports that the policy applies to; empty if they are not known.
	Ports []mesh.Port
	// Selected is true if the policy is for the workloads that the workloadSelector of its object selects.
	Selected bool
	// HTTP2 is true if requests over HTTP/1.1 are upgraded to HTTP/2 towards the endpoints.
	HTTP2 bool
}

// speaks reports whether fits is true for the protocol of some port. Ports with protocol detection or without a known protocol may have any.
func (s Scope) speaks(fits func(mesh.Protocol) bool) bool {
	for _, p := range s.Ports {
		if p.Protocol.Sniffed() || fits(p.Protocol) {
			return true
		}
	}
	return len(s.Ports) == 0
}

// only returns the scope for one port.
func (s Scope) only(number uint32) Scope {
	for _, p := range s.Ports {
		if p.Number == number {
			s.Ports = []mesh.Port{p}
			return s
		}
	}
	s.Ports = nil
	return s
}

// idle returns why a field has no effect in a scope; "" if it has one.
func (f *field) idle(s Scope) string {
	switch {
	case f.refused:
		return advise("is not supported yet: ignored", f.advice)
	case f.gateway:
		return advise("only gateways act on it: ignored", f.advice)
	case f.selected && !s.Selected:
		return advise("sidecars use it only in a DestinationRule with a workloadSelector", f.advice)
	case f.client && s.Server:
		return advise("is about connections to other services, not about those to the application: it does nothing", f.advice)
	}
	return f.idleOn(s)
}

// idleOn returns why a field has no effect on the ports of a scope, whether or not the product acts on it; "" if it has one.
func (f *field) idleOn(s Scope) string {
	advice := f.advice
	if advice == "" {
		advice = "remove it, or declare the protocol of the port"
	}
	switch {
	case f.http && !s.speaks(mesh.Protocol.IsHTTP):
		return advise("is about HTTP, and no port that it is for is declared to speak that: it does nothing", advice)
	case f.http2 && !s.speaks(func(p mesh.Protocol) bool { return p.IsHTTP2() || p.IsHTTP() && s.HTTP2 }):
		return advise("is about HTTP/2, and no port that it is for is spoken to in that: it does nothing", advice)
	case f.tcp && !s.speaks(func(p mesh.Protocol) bool { return !p.IsHTTP() }):
		return advise("is about connections that are not HTTP, and all ports that it is for are declared HTTP: it does nothing", advice)
	}
	return ""
}

func advise(reason, advice string) string {
	if advice == "" {
		return reason
	}
	return reason + "; " + advice
}
