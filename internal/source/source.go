// Package source is the contract between the control plane and the places configuration and services come from.
//
// A source runs until it is cancelled and hands over batches. One batch is one atomic change of the outside world as far
// as the source can tell: what changed together arrives together. A source owns its last known good state: an object
// it can no longer read stays, with a Problem that says so, until the source knows that the object is gone.
//
// The package holds types only; it starts no goroutines. Implementations live below it and must not import the store,
// the state, views or xds.
package source

import (
	"context"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
)

// Event is the new version of one object, or its removal.
type Event struct {
	Key api.Key
	// Object is nil when the object is gone.
	Object *api.Object
	// Added says that the source did not have the object before. A receiver that has taken in neither the addition nor what
	// followed may then forget both when the object goes.
	Added bool
}

// ProblemEvent is a problem that came, or one that is gone.
type ProblemEvent struct {
	Problem api.Problem
	Gone    bool
}

// Batch is what changed at a source at one moment. Receivers apply it as a whole or not at all.
type Batch struct {
	// Source is the Name of the source.
	Source string
	// Events are the changed objects, each key at most once, in key order. Objects that did not change are not named.
	Events []Event
	// Problems are the problems that the source has since this batch, and those it has no longer. A problem is told once when
	// it comes and once when it goes.
	Problems []ProblemEvent
	// Synced says that the source has listed everything once. Once true, it stays true.
	Synced bool
	// Mesh, if not nil, replaces the mesh settings.
	Mesh *meshconfig.MeshConfig
}

// Sink takes batches. Apply never blocks: it queues. The batch belongs to the sink afterwards. A sink may put batches of one
// source together, so that several become visible at once, but never a part of one.
type Sink interface {
	Apply(Batch)
}

// Source is a place configuration or services come from.
type Source interface {
	// Name identifies the source in batches, problems and logs.
	Name() string
	// Run hands batches to sink until ctx is cancelled, which is not an error. It calls sink from one goroutine at a
	// time and returns only after its own goroutines have ended.
	Run(ctx context.Context, sink Sink) error
}

// ProblemEvents are the events between two lists of problems.
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
