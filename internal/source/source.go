// Package source defines the interface between the control plane and the sources of configuration and services.
//
// A source runs until it is cancelled and passes batches to a sink. A batch is one atomic change, as far as the source can
// determine: objects that changed together arrive together. A source keeps the last good version of an object that it can no longer read,
// and reports a Problem, until it knows that the object was removed.
//
// Goroutines: none. The package contains types only.
package source

import (
	"context"
	"slices"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
)

// Event is the new version of one object, or its removal.
type Event struct {
	Key api.Key
	// Object is the new version of an object of configuration, and Value the new version of a Kubernetes object. Both are nil
	// if the object was removed.
	Object *api.Object
	Value  kube.Value
	// Position is the place of Value in a file; zero if it does not come from one. An Object has its own.
	Position api.Position
	// Added reports that the object is new at the source. A receiver that has processed neither the addition nor later events
	// may drop all of them when the object is removed.
	Added bool
}

// Removed reports whether the object was removed.
func (e Event) Removed() bool { return e.Object == nil && e.Value == nil }

// ProblemEvent reports that a problem appeared, or that it was resolved.
type ProblemEvent struct {
	Problem api.Problem
	Gone    bool
}

// Batch is a set of changes at a source. Receivers apply it as a whole or not at all.
type Batch struct {
	// Source is the Name of the source.
	Source string
	// Events are the changed objects in key order, each key at most once. They do not include objects that did not change.
	Events []Event
	// Problems are the problems that appeared with this batch, and the problems that were resolved. A problem is reported once when
	// it appears and once when it is resolved.
	Problems []ProblemEvent
	// Synced reports that the source has listed everything once. Once true, it stays true.
	Synced bool
	// Mesh, if not nil, replaces the mesh configuration, and Networks the mesh networks.
	Mesh     *meshconfig.MeshConfig
	Networks *meshconfig.MeshNetworks
}

// Sink receives batches. Apply queues the batch and never blocks. The sink owns the batch afterwards. A sink may merge several
// batches of one source, so that they become visible together, but it never applies a part of a batch.
type Sink interface {
	Apply(Batch)
}

// Source is a source of configuration or services.
type Source interface {
	// Name identifies the source in batches, problems and logs.
	Name() string
	// Run passes batches to sink until ctx is cancelled, which is not an error. It calls sink from one goroutine at a time,
	// and returns only after its own goroutines have ended.
	Run(ctx context.Context, sink Sink) error
}

// The states of a remote cluster.
const (
	// ClusterSyncing: it has not been listed yet.
	ClusterSyncing = "syncing"
	// ClusterSynced: its services are in force.
	ClusterSynced = "synced"
	// ClusterStale: it cannot be read now, and its last services are in force.
	ClusterStale = "stale"
	// ClusterRefused: its kubeconfig cannot be used.
	ClusterRefused = "refused"
)

// Cluster describes a remote cluster. Fields have the names that istioctl reads.
type Cluster struct {
	ID string `json:"id"`
	// Secret is NAMESPACE/NAME of the Secret that describes the cluster.
	Secret string `json:"secretName"`
	State  string `json:"syncStatus"`
	Server string `json:"server,omitempty"`
	// Problems say what cannot be read, or why the kubeconfig is not used.
	Problems []string `json:"problems,omitempty"`
}

// Report passes on events of a source that has listed everything, in the order of their keys.
func Report(to Sink, name string, events []Event) {
	if len(events) > 0 {
		slices.SortFunc(events, func(a, b Event) int { return a.Key.Compare(b.Key) })
		to.Apply(Batch{Source: name, Events: events, Synced: true})
	}
}

// ProblemEvents returns the events that lead from one list of problems to another.
func ProblemEvents(was, is []api.Problem) (events []ProblemEvent) {
	count := make(map[api.Problem]int, len(was))
	for _, p := range was {
		count[p] |= 1
	}
	for _, p := range is {
		if count[p] == 0 {
			events = append(events, ProblemEvent{Problem: p})
		}
		count[p] |= 2
	}
	for _, p := range was {
		if count[p] == 1 {
			events = append(events, ProblemEvent{Problem: p, Gone: true})
			count[p] = 0
		}
	}
	return events
}
