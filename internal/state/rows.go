package state

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Problems is a set of problems by OutputName.
type Problems = omap.Map[omap.Name, api.Problem]

// ProblemsOf returns the problems of an object. The names of problems begin with their object, so only these are read.
func ProblemsOf(all Problems, k api.Key) (list []api.Problem) {
	from := k.String() + "|"
	for name, problem := range omap.From(all, omap.Name(from)) {
		if !strings.HasPrefix(string(name), from) {
			break
		}
		list = append(list, problem)
	}
	return list
}

// Source is the state of a source.
type Source struct {
	// Synced is true if the source has delivered its first complete list.
	Synced bool
}

type sourcedKey struct {
	Source string
	Object api.Key
}

// Endpoints are the endpoints of an object that declares a service: inline ones, and the selector of others.
type Endpoints struct {
	Inline   []mesh.Endpoint
	Selector map[string]string
	// Scale is how many units of the weights are the weight 1; 0 counts as 1.
	Scale uint32
}

// maxLabelled is the maximum number of inline endpoints of an object whose labels are compared on each change of one of them.
const maxLabelled = 200

// Crowded reports whether there are too many inline endpoints to look at their labels. Any label may be among them.
func (e *Endpoints) Crowded() bool { return len(e.Inline) > maxLabelled }

// Labels returns the labels of all inline endpoints, each once and in order. For a crowded object it returns AnyLabel alone.
func (e *Endpoints) Labels() []mesh.Label {
	if e.Crowded() {
		return []mesh.Label{AnyLabel()}
	}
	labels := map[mesh.Label]bool{}
	for i, ep := range e.Inline {
		if i > 0 && ep.Labels == e.Inline[i-1].Labels {
			continue // most endpoints have the labels of their neighbours
		}
		for label := range ep.Labels.All() {
			labels[label] = true
		}
	}
	return slices.SortedFunc(maps.Keys(labels), mesh.Label.Compare)
}

// LabelSets returns the different sets of labels of the inline endpoints, in order. Of a crowded object it returns one set with
// AnyLabel alone.
func (e *Endpoints) LabelSets() [][]mesh.Label {
	if e.Crowded() {
		return [][]mesh.Label{{AnyLabel()}}
	}
	var sets [][]mesh.Label
	for i, ep := range e.Inline {
		if i > 0 && ep.Labels == e.Inline[i-1].Labels {
			continue // most endpoints have the labels of their neighbours
		}
		sets = append(sets, ep.Labels.Items())
	}
	slices.SortFunc(sets, func(a, b []mesh.Label) int { return slices.CompareFunc(a, b, mesh.Label.Compare) })
	return slices.CompactFunc(sets, slices.Equal)
}

// AnyLabel represents the labels of a crowded object. No label of a workload has an empty name.
func AnyLabel() mesh.Label { return mesh.Label{} }

// Identities are the identities of the endpoints of an object that declares a service. Clusters depend on these, and not on the
// endpoints. Only Services have such a row, and ServiceEntries whose endpoints have an identity or that select workloads.
type Identities struct {
	// MeshTLS is true if some inline endpoint accepts mesh TLS.
	MeshTLS bool
	// Accounts are the service accounts of the inline endpoints, each once and in order.
	Accounts []string
	Selector map[string]string
}

func (i *Identities) equal(o *Identities) bool {
	return i.MeshTLS == o.MeshTLS && slices.Equal(i.Accounts, o.Accounts) && maps.Equal(i.Selector, o.Selector)
}

func (e *Endpoints) equal(o *Endpoints) bool {
	return slices.EqualFunc(e.Inline, o.Inline, mesh.Endpoint.Equal) && maps.Equal(e.Selector, o.Selector) && e.Scale == o.Scale
}

// DestinationRule is the traffic policy of an object for the services that its host covers.
type DestinationRule struct {
	Object  api.Key
	Created int64
	Host    string
	// Selector selects the client workloads of its namespace that use the rule. If it is empty, all clients that see the rule do.
	Selector map[string]string
	// Audience are the layers that see the rule. Rules with different audiences are not merged.
	Audience intern.List[string]
	// Credential is true if the rule names a Secret that gateways use.
	Credential bool
	Spec       *networking.DestinationRule
	Hash       omap.Hash
}

func (d *DestinationRule) equal(o *DestinationRule) bool {
	return d.Hash == o.Hash && d.Audience == o.Audience
}
