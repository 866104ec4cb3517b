// Package memory is a source for programs that embed the control plane, and for tests. Objects are passed by calls of Go
// functions.
//
// Invariants:
//   - One Update is one batch, independent of the number of objects. An Update that changes nothing sends no batch.
//   - An object that fails validation is not applied. Its last good version is kept, and a Problem is reported.
//   - Updates are possible before, during and after Run. Run begins with one batch of all objects.
//
// Goroutines: the package starts none. Update passes its batch to the sink in the caller's goroutine.
package memory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/source"
)

// Source holds objects in memory.
type Source struct {
	name string

	mu       sync.Mutex
	sink     source.Sink // nil unless running
	objects  map[api.Key]*api.Object
	problems map[api.Key][]api.Problem
	mesh     *meshconfig.MeshConfig
	reported []api.Problem // reported to the sink of the present or last Run
}

// New returns an empty source. Sources of one control plane must have different names.
func New(name string) *Source {
	return &Source{name: name, objects: map[api.Key]*api.Object{}, problems: map[api.Key][]api.Problem{}}
}

// Name implements source.Source.
func (s *Source) Name() string { return s.name }

// Tx collects the changes of an Update. It is valid only while the function that got it runs.
type Tx struct {
	writes  map[api.Key]*api.Object // nil values are deletions
	refused map[api.Key][]api.Problem
	mesh    *meshconfig.MeshConfig
}

// Refuse keeps the last good version of an object whose new version is refused, and reports why. Where there is none, denying takes its
// place, unless it is nil: a workload whose access policy cannot be read must stay closed.
func (t *Tx) Refuse(k api.Key, problems []api.Problem, denying *api.Object) {
	t.writes[k], t.refused[k] = denying, problems
}

// Set adds or replaces objects, which Seal or Decode must have returned. The last of several writes to one key counts.
func (t *Tx) Set(objects ...*api.Object) {
	for _, o := range objects {
		t.writes[o.Key] = o
		delete(t.refused, o.Key)
	}
}

// Delete removes objects. Keys without objects are ignored.
func (t *Tx) Delete(keys ...api.Key) {
	for _, k := range keys {
		t.writes[k] = nil
		delete(t.refused, k)
	}
}

// Mesh replaces the mesh configuration.
func (t *Tx) Mesh(m *meshconfig.MeshConfig) { t.mesh = m }

// Update applies all changes of fn as one batch. It returns the problems of the objects that fn has set; objects with an Error
// were not applied. fn must not call methods of the source.
func (s *Source) Update(fn func(*Tx)) []api.Problem {
	t := &Tx{writes: map[api.Key]*api.Object{}, refused: map[api.Key][]api.Problem{}}
	fn(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []api.Problem
	var events []source.Event
	changed := false
	for _, key := range slices.SortedFunc(maps.Keys(t.writes), api.Key.Compare) {
		o := t.writes[key]
		problems := append(t.refused[key], check(o)...)
		found = append(found, problems...)
		changed = s.report(key, problems) || changed
		old := s.objects[key]
		standsIn := t.refused[key] != nil && o != nil && old == nil
		switch {
		case api.Failed(problems) && !standsIn: // the last good version stays
		case o == nil && old != nil:
			delete(s.objects, key)
			events = append(events, source.Event{Key: key})
		case o != nil && (old == nil || old.Hash != o.Hash):
			s.objects[key] = o
			events = append(events, source.Event{Key: key, Object: o, Added: old == nil})
		}
	}
	var mesh *meshconfig.MeshConfig
	if t.mesh != nil && !proto.Equal(t.mesh, s.mesh) {
		s.mesh, mesh = t.mesh, t.mesh
	}
	if s.sink != nil && (len(events) > 0 || changed || mesh != nil) {
		s.sink.Apply(source.Batch{Source: s.name, Events: events, Problems: s.problemEvents(), Synced: true, Mesh: mesh})
	}
	return found
}

// check returns all problems of an object.
func check(o *api.Object) []api.Problem {
	if o == nil {
		return nil
	}
	if o.Hash == (omap.Hash{}) {
		return []api.Problem{{Object: o.Key, Severity: api.Error, Code: "object-unsealed", Reason: "is not sealed; pass what Seal or Decode returned"}}
	}
	problems := api.Validate(o)
	if !api.Failed(problems) {
		problems = append(problems, api.Unsupported(o)...)
	}
	return problems
}

// report replaces the problems of an object. It reports whether they have changed.
func (s *Source) report(key api.Key, problems []api.Problem) bool {
	if slices.Equal(problems, s.problems[key]) {
		return false
	}
	s.problems[key] = problems
	if len(problems) == 0 {
		delete(s.problems, key)
	}
	return true
}

// problemEvents returns the changes of problems since the last call.
func (s *Source) problemEvents() []source.ProblemEvent {
	all := s.all()
	events := source.ProblemEvents(s.reported, all)
	s.reported = all
	return events
}

func (s *Source) all() []api.Problem {
	var all []api.Problem
	for _, key := range slices.SortedFunc(maps.Keys(s.problems), api.Key.Compare) {
		all = append(all, s.problems[key]...)
	}
	return all
}

// Set adds or replaces objects as one change; see Update.
func (s *Source) Set(objects ...*api.Object) []api.Problem {
	return s.Update(func(t *Tx) { t.Set(objects...) })
}

// Delete removes objects as one change.
func (s *Source) Delete(keys ...api.Key) { s.Update(func(t *Tx) { t.Delete(keys...) }) }

// Run implements source.Source. It must not be called again before it has returned.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	if err := s.start(sink); err != nil {
		return err
	}
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sink = nil
	return nil
}

func (s *Source) start(sink source.Sink) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sink != nil {
		return errors.New("source " + s.name + " is running already; make one source per control plane")
	}
	s.sink = sink
	b := source.Batch{Source: s.name, Problems: s.problemEvents(), Synced: true, Mesh: s.mesh}
	for _, key := range slices.SortedFunc(maps.Keys(s.objects), api.Key.Compare) {
		b.Events = append(b.Events, source.Event{Key: key, Object: s.objects[key]})
	}
	sink.Apply(b)
	return nil
}
