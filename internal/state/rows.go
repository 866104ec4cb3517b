package state

import (
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
)

// Problems is a set of problems by OutputName.
type Problems = omap.Map[omap.Name, api.Problem]

// Source is what is known of a source.
type Source struct {
	// Synced says that it has listed everything once.
	Synced bool
}

type sourcedKey struct {
	Source string
	Object api.Key
}

// Endpoints are the endpoints of what a ServiceEntry declares: inline ones, and those its selector selects.
type Endpoints struct {
	Inline   []mesh.Endpoint
	Selector map[string]string
}

// maxLabelled is up to how many endpoints of one object are asked for their labels on each change of one of them.
const maxLabelled = 200

// Crowded reports whether there are so many inline endpoints that their labels are not told apart: any may be among them.
func (e *Endpoints) Crowded() bool { return len(e.Inline) > maxLabelled }

// Labels are the labels that any of the inline endpoints has, each once, in order; of a crowded object AnyLabel alone.
func (e *Endpoints) Labels() []mesh.Label {
	if e.Crowded() {
		return []mesh.Label{AnyLabel()}
	}
	labels := map[mesh.Label]bool{}
	for i, ep := range e.Inline {
		if i > 0 && maps.Equal(ep.Labels, e.Inline[i-1].Labels) {
			continue // most endpoints have the labels of their neighbours
		}
		for name, value := range ep.Labels {
			labels[mesh.Label{Name: name, Value: value}] = true
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
		if i > 0 && maps.Equal(ep.Labels, e.Inline[i-1].Labels) {
			continue // most endpoints have the labels of their neighbours
		}
		sets = append(sets, mesh.SortedLabels(ep.Labels))
	}
	slices.SortFunc(sets, func(a, b []mesh.Label) int { return slices.CompareFunc(a, b, mesh.Label.Compare) })
	return slices.CompactFunc(sets, slices.Equal)
}

// AnyLabel stands for the labels of what is crowded. No label of a workload has an empty name.
func AnyLabel() mesh.Label { return mesh.Label{} }

// Identities is what a ServiceEntry's endpoints say of who they are: all that a client's clusters depend on. Only those
// that say something, or select workloads, have the row.
type Identities struct {
	// MeshTLS says that some inline endpoint takes the mesh's TLS.
	MeshTLS bool
	// Accounts are the service accounts of the inline endpoints, in order, each once.
	Accounts []string
	Selector map[string]string
}

func (i *Identities) equal(o *Identities) bool {
	return i.MeshTLS == o.MeshTLS && slices.Equal(i.Accounts, o.Accounts) && maps.Equal(i.Selector, o.Selector)
}

func (e *Endpoints) equal(o *Endpoints) bool {
	return slices.EqualFunc(e.Inline, o.Inline, mesh.Endpoint.Equal) && maps.Equal(e.Selector, o.Selector)
}

// DestinationRule is an object's traffic policy for the services its host covers.
type DestinationRule struct {
	Object  api.Key
	Created int64
	Host    string
	// Selector says for which workloads of its namespace it is; empty for all callers that see it.
	Selector map[string]string
	// Audience are the layers that see it: rules for different callers are not merged.
	Audience intern.List[string]
	Spec     *networking.DestinationRule
	Hash     omap.Hash
}

func (d *DestinationRule) equal(o *DestinationRule) bool {
	return d.Hash == o.Hash && d.Audience == o.Audience
}
