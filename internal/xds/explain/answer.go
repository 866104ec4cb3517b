// Package explain answers questions about one proxy: what something it has is made of, and why it does not have
// something else.
//
// It owns the form of answers and their wording; it decides nothing. What is served is read from the state of the
// proxy's class, what that was made of from the reads that the graph recorded, and why something is missing from the
// same queries that left it out (packages service, traffic, scope), asked at the present revision by a reader that leaves
// no trace. So an answer cannot differ from what is served, and costs nothing while nobody asks.
//
// Ask belongs to the goroutine that owns the graph, between commits. It is quick: what grows with the mesh is left to
// Answer.Complete, which may run anywhere. The package starts no goroutines and must not import push or server.
package explain

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
)

// Version is that of the form of an Answer. It changes when a field goes away or changes its meaning; that a field comes
// is no new version.
const Version = 1

// Verdict says in a word how it is.
type Verdict string

// The verdicts.
const (
	// Served: the proxy is to have it, and has it as soon as it has acknowledged the revision.
	Served Verdict = "served"
	// HeldBack: the proxy rejected it, and keeps what it had under the name.
	HeldBack Verdict = "held back"
	// Absent: the proxy is not to have it.
	Absent Verdict = "absent"
)

// Answer is what there is to say.
type Answer struct {
	Version  int            `json:"version"`
	Revision store.Revision `json:"revision"`
	Proxy    Proxy          `json:"proxy"`
	Kind     string         `json:"kind"` // host, or a type of resource: cluster, endpoint, listener, route
	Name     string         `json:"name"`
	Verdict  Verdict        `json:"verdict"`
	// Resources are what the proxy is to have under the name.
	Resources []Resource `json:"resources,omitempty"`
	// Ports are those of a host.
	Ports []Port `json:"ports,omitempty"`
	// Sources are the objects it is made of, and those that could be and are not.
	Sources []Source `json:"sources,omitempty"`
	// Reasons say why something is missing.
	Reasons []Reason `json:"reasons,omitempty"`
	// Problems are those of the objects named.
	Problems []Problem `json:"problems,omitempty"`
	// Similar are names that there are, if there is nothing under the one that was asked for.
	Similar []string `json:"similar,omitempty"`

	problems omap.Map[omap.Name, api.Problem]
	said     []string                        // reasons that need not be said once more as problems
	names    []func(yield func(string) bool) // among which Similar are looked for
}

// Proxy is whom the answer is about.
type Proxy struct {
	Name      string `json:"name"` // name.namespace
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	Mode      string `json:"mode"`
	Sidecar   *Ref   `json:"sidecar,omitempty"` // the Sidecar that narrows what it sees
}

// Ref names an object, and where it was read.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	File      string `json:"file,omitempty"`
	Line      int    `json:"line,omitempty"`
}

// Key is the object's key.
func (r Ref) Key() api.Key { return api.Key{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name} }

// Place is the file and line, as editors and compilers write them; empty if unknown.
func (r Ref) Place() string { return api.Position{File: r.File, Line: r.Line}.String() }

// Resource is one resource of the proxy.
type Resource struct {
	Type        string `json:"type"`
	Name        string `json:"name"`
	VirtualHost string `json:"virtual_host,omitempty"` // the one of a route configuration that was asked for
	Version     string `json:"version"`
	Bytes       int    `json:"bytes"`
	Holds       string `json:"holds,omitempty"`     // how many virtual hosts or endpoints are in it
	SharedBy    string `json:"shared_by,omitempty"` // the proxies that have the same
}

// Source is an object, and its part in what was asked for.
type Source struct {
	Object Ref `json:"object"`
	// Part says what it is for: service, endpoints, routes, policy, scope.
	Part string `json:"part"`
	// Unused says why it does not count; empty if it does.
	Unused string `json:"unused,omitempty"`
	// Revision is the one that last changed what was read of it.
	Revision store.Revision `json:"revision,omitempty"`
}

// Reason is why something is missing.
type Reason struct {
	Text   string `json:"text"`
	Object *Ref   `json:"object,omitempty"` // whose doing it is
	Fix    string `json:"fix,omitempty"`
}

// Port is a port of a host, and what the proxy has for it.
type Port struct {
	Number      uint32   `json:"number"`
	Name        string   `json:"name,omitempty"`
	Protocol    string   `json:"protocol"`
	Listener    string   `json:"listener,omitempty"`
	Route       string   `json:"route,omitempty"`
	VirtualHost string   `json:"virtual_host,omitempty"`
	Clusters    []string `json:"clusters,omitempty"`
	Endpoints   int      `json:"endpoints"`
	Reasons     []Reason `json:"reasons,omitempty"`
}

// Problem is a problem of an object that the answer names.
type Problem struct {
	Object Ref    `json:"object"`
	Field  string `json:"field,omitempty"`
	Level  string `json:"level"`
	Reason string `json:"reason"`
}

const (
	maxSimilar  = 5
	maxProblems = 20
)

// Complete adds what is found by looking through lists. It may run on any goroutine, once.
func (a *Answer) Complete() {
	named := map[api.Key]Ref{}
	for _, s := range a.Sources {
		named[s.Object.Key()] = s.Object
	}
	for _, r := range a.Reasons {
		if r.Object != nil {
			named[r.Object.Key()] = *r.Object
		}
	}
	for _, p := range a.problems.All() {
		ref, ok := named[p.Object]
		if !ok || len(a.Problems) == maxProblems || slices.ContainsFunc(a.said, func(s string) bool { return strings.HasSuffix(p.Reason, s) }) {
			continue
		}
		if p.Position.File != "" {
			ref.File, ref.Line = p.Position.File, p.Position.Line
		}
		a.Problems = append(a.Problems, Problem{ref, p.Field, p.Severity.String(), p.Reason})
	}
	if len(a.names) > 0 {
		a.Similar = similar(a.Name, a.names)
	}
	a.problems, a.names = omap.Map[omap.Name, api.Problem]{}, nil
}
