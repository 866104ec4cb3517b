// Package reply has the form of answers about one proxy: what a resource was made of, and why something else is missing. It writes them as text and as
// JSON, and Complete adds what requires looking through lists. An answer belongs to one goroutine at a time. The package starts no goroutines.
package reply

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/explain/access"
)

// Mixed is the verdict on a request that some workloads allow and others do not.
const Mixed access.Verdict = "mixed"

// Version is the version of the form of an Answer. It changes when a field is removed or changes its meaning, not when a
// field is added.
const Version = 1

// Verdict is the short answer.
type Verdict string

// The verdicts.
const (
	// Served means that the proxy is to have the resource, and has it once it has acknowledged the revision.
	Served Verdict = "served"
	// HeldBack means that the proxy rejected the resource and keeps the content that it had under the name.
	HeldBack Verdict = "held back"
	// NotAsked means that the proxy is a sidecar with hosts on demand, and gets the resource with the first request of its workload for the host.
	NotAsked Verdict = "not asked for yet"
	// Absent means that the proxy is not to have it.
	Absent Verdict = "absent"
)

// Answer is the answer to a Question.
type Answer struct {
	Version  int            `json:"version"`
	Revision store.Revision `json:"revision"`
	Proxy    Proxy          `json:"proxy"`
	// Kind is "host", or a type of resource: cluster, endpoint, listener, route.
	Kind    string  `json:"kind"`
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Resources are what the proxy is to have under the name.
	Resources []Resource `json:"resources,omitempty"`
	// Ports are the ports of the host in the question.
	Ports []Port `json:"ports,omitempty"`
	// Mode is the mode of mutual TLS of a port of the workload, and Chains are what connections to it meet.
	Mode   string  `json:"mtls_mode,omitempty"`
	Chains []Chain `json:"chains,omitempty"`
	// Policies are the policies about requests to a port of the workload, in the order in which Envoy evaluates them.
	Policies []Policy `json:"policies,omitempty"`
	// Sources are the objects that it was made of, and the objects that could contribute and do not.
	Sources []Source `json:"sources,omitempty"`
	// Reasons say why something is missing.
	Reasons []Reason `json:"reasons,omitempty"`
	// Problems are the problems of the objects that the answer names.
	Problems []Problem `json:"problems,omitempty"`
	// Similar are existing names that resemble the one that was asked about, if nothing has that name.
	Similar []string `json:"similar,omitempty"`

	// Lists are what Complete looks through.
	Lists Completion `json:"-"`
}

// Completion are the lists for Complete, which drops them.
type Completion struct {
	// Problems are all problems of the mesh; Complete selects from them.
	Problems omap.Map[omap.Name, api.Problem]
	// StatedReasons are reasons that must not be repeated as problems.
	StatedReasons []string
	// Names yield the names among which Complete looks for Similar.
	Names []func(yield func(string) bool)
}

// Proxy is the proxy that the answer is about.
type Proxy struct {
	// Name is "name.namespace".
	Name      string `json:"name"`
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	Mode      string `json:"mode"`
	// Sidecar is the Sidecar that limits what the proxy sees.
	Sidecar *Ref `json:"sidecar,omitempty"`
}

// Ref names an object and the file and line it was read from.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Cluster is the cluster of an object of a service registry, such as a Service; empty for configuration.
	Cluster string `json:"cluster,omitempty"`
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
}

// RefTo names an object that was read from a place.
func RefTo(k api.Key, at api.Position) Ref {
	return Ref{Kind: k.Kind, Namespace: k.Namespace, Name: k.Name, Cluster: k.Cluster, File: at.File, Line: at.Line}
}

// Key is the object's key.
func (r Ref) Key() api.Key {
	return api.Key{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Cluster: r.Cluster}
}

// Position is the file and line in the notation of compilers; empty if unknown.
func (r Ref) Position() string { return api.Position{File: r.File, Line: r.Line}.String() }

// Prefix is the position in front of a text; empty if it is not known.
func (r Ref) Prefix() string {
	if place := r.Position(); place != "" {
		return place + ": "
	}
	return ""
}

// Resource is one resource of the proxy.
type Resource struct {
	Type string `json:"type"`
	Name string `json:"name"`
	// VirtualHost is the virtual host of a route configuration that was asked about.
	VirtualHost string `json:"virtual_host,omitempty"`
	Version     string `json:"version"`
	Bytes       int    `json:"bytes"`
	// Holds says how many virtual hosts or endpoints are in the resource.
	Holds string `json:"holds,omitempty"`
	// SharedBy describes the proxies that share the resource.
	SharedBy string `json:"shared_by,omitempty"`
}

// Source is an object and its role in the subject of the question.
type Source struct {
	Object Ref `json:"object"`
	// Role is service, endpoints, endpoint, routes, policy, scope, mutual TLS or mesh settings.
	Role string `json:"part"`
	// Unused says why the object does not count. It is empty if it does.
	Unused string `json:"unused,omitempty"`
	// Revision is the last revision that changed the fields read of the object. 0 means unknown.
	Revision store.Revision `json:"revision,omitempty"`
}

// Reason says why something is missing.
type Reason struct {
	Text string `json:"text"`
	// Object is the object that causes it; nil if none does.
	Object *Ref `json:"object,omitempty"`
	// Fix is what the user can do; empty if nothing is known.
	Fix string `json:"fix,omitempty"`
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
	// Origins are the registries of the endpoints, if registries outside Kubernetes have the host. There are maxOrigins at most.
	Origins []Origin `json:"origins,omitempty"`
	// Destinations are where requests go, in the order in which the proxy looks for a match.
	Destinations []Destination `json:"destinations,omitempty"`

	// Judge finds out whether endpoints allow a request: which one was asked, and the verdict by address; nil if it is not known who the proxy is.
	Judge func() (asked string, verdicts map[string]access.Verdict) `json:"-"`
}

// Origin is an endpoint and the registry that it comes from.
type Origin struct {
	Address  string `json:"address"`
	Registry string `json:"registry"`
	// Unused is true if it gets no traffic, because the registry says so or the traffic of the host migrates to other registries.
	Unused bool `json:"unused,omitempty"`
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

// Place sets the lines of the objects that the answer names to their lines in the present files: an object that moves in its file is not read again. fields
// sets the positions of Problems; nil if no files are read. It may be called once, on any goroutine.
func (a *Answer) Place(fields func([]api.Problem)) {
	if fields == nil {
		return
	}
	refs := a.refs()
	at := make([]api.Problem, len(refs))
	for n, r := range refs {
		at[n] = api.Problem{Object: r.Key(), Position: api.Position{File: r.File, Line: r.Line}}
	}
	fields(at)
	for n, r := range refs {
		r.Line = at[n].Position.Line
	}
}

// refs are the objects of the answer that have a position.
func (a *Answer) refs() (list []*Ref) {
	add := func(r *Ref) {
		if r != nil && r.Line > 0 {
			list = append(list, r)
		}
	}
	add(a.Proxy.Sidecar)
	for n := range a.Sources {
		add(&a.Sources[n].Object)
	}
	for n := range a.Policies {
		add(&a.Policies[n].Object)
	}
	for n := range a.Problems {
		add(&a.Problems[n].Object)
	}
	for n := range a.Reasons {
		add(a.Reasons[n].Object)
	}
	for _, p := range a.Ports {
		for n := range p.Reasons {
			add(p.Reasons[n].Object)
		}
	}
	return list
}

// Complete adds what requires looking through lists. It may be called once, on any goroutine.
func (a *Answer) Complete() {
	for n := range a.Ports {
		a.Ports[n].judgeDestinations()
	}
	named := map[api.Key]Ref{}
	for _, s := range a.Sources {
		named[s.Object.Key()] = s.Object
	}
	for _, p := range a.Policies {
		named[p.Object.Key()] = p.Object
	}
	for _, r := range a.Reasons {
		if r.Object != nil {
			named[r.Object.Key()] = *r.Object
		}
	}
	for _, p := range a.Lists.Problems.All() {
		ref, ok := named[p.Object]
		if !ok || len(a.Problems) == maxProblems || slices.ContainsFunc(a.Lists.StatedReasons, func(s string) bool { return strings.Contains(p.Reason, s) }) {
			continue
		}
		if p.Position.File != "" {
			ref.File, ref.Line = p.Position.File, p.Position.Line
		}
		a.Problems = append(a.Problems, Problem{ref, p.Field, p.Severity.String(), p.Reason})
	}
	if len(a.Lists.Names) > 0 {
		a.Similar = Similar(a.Name, a.Lists.Names)
	}
	a.Lists = Completion{}
}

// text is the line about an endpoint.
func (o Origin) text() string {
	text := o.Address + " of registry " + o.Registry
	if o.Unused {
		text += ", gets no traffic"
	}
	return text
}
