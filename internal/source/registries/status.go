package registries

import (
	"maps"
	"slices"

	"github.com/pilotmesh/pilot/internal/api/registry"
)

// Statuses returns the states of all registries, in the order of the file.
func (s *Source) Statuses() []registry.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []registry.Status{}
	for _, r := range s.rooms {
		one := registry.Status{
			Name: r.entry.Name, Type: r.entry.Type, State: r.state(), LastError: r.problem, Services: len(r.sent), Instances: r.instances, Held: r.heldInstances(),
			Problems: []string{},
		}
		if r.objects != nil {
			one.Services, one.Instances = r.objects.count()
		}
		if !r.sync.IsZero() {
			at := r.sync.UTC()
			one.LastSync = &at
		}
		for _, name := range slices.Sorted(maps.Keys(r.reported)) {
			for _, p := range r.reported[name] {
				one.Problems = append(one.Problems, p.String())
			}
		}
		list = append(list, one)
	}
	return list
}
