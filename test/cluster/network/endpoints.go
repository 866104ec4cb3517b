package network

import (
	"slices"
	"sync"
	"time"

	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// endpoints are the EndpointSlices as this package sees them, which a fault switch may make older than they are.
type endpoints struct {
	mu      sync.Mutex
	applied map[types.NamespacedName]map[string]*discovery.EndpointSlice // by service, then by the slice's name
	waiting []change                                                     // in order of arrival
	delay   time.Duration
	wake    func() // the loop should look
}

// change is a slice that appeared, changed or (gone) vanished.
type change struct {
	at    time.Time
	slice *discovery.EndpointSlice
	gone  bool
}

func newEndpoints(wake func()) *endpoints {
	return &endpoints{applied: map[types.NamespacedName]map[string]*discovery.EndpointSlice{}, wake: wake}
}

// put takes a change; it counts once the delay is over, and never before one that arrived earlier.
func (e *endpoints) put(s *discovery.EndpointSlice, gone bool) {
	e.mu.Lock()
	e.waiting = append(e.waiting, change{time.Now(), s, gone})
	e.mu.Unlock()
	e.wake()
}

// setDelay counts for what waits already as well.
func (e *endpoints) setDelay(d time.Duration) {
	e.mu.Lock()
	e.delay = d
	e.mu.Unlock()
	e.wake()
}

// advance applies the changes that are due and returns the time until the next one is, or 0 if none waits.
func (e *endpoints) advance(now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, c := range e.waiting {
		if left := e.delay - now.Sub(c.at); left > 0 {
			e.waiting = slices.Clone(e.waiting[i:])
			return left
		}
		e.apply(c)
	}
	e.waiting = nil
	return 0
}

func (e *endpoints) apply(c change) {
	service := types.NamespacedName{Namespace: c.slice.Namespace, Name: c.slice.Labels[discovery.LabelServiceName]}
	of := e.applied[service]
	if c.gone {
		if delete(of, c.slice.Name); len(of) == 0 {
			delete(e.applied, service)
		}
		return
	}
	if of == nil {
		of = map[string]*discovery.EndpointSlice{}
		e.applied[service] = of
	}
	of[c.slice.Name] = c.slice
}

// of returns a service's slices, ordered by name.
func (e *endpoints) of(service types.NamespacedName) []*discovery.EndpointSlice {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []*discovery.EndpointSlice
	for _, s := range e.applied[service] {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *discovery.EndpointSlice) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

// usable reports whether an endpoint takes new connections: it is ready, or the field is absent, which means the same.
func usable(e discovery.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// lastResort reports whether a terminating endpoint still serves: better than none.
func lastResort(e discovery.Endpoint) bool {
	return e.Conditions.Terminating != nil && *e.Conditions.Terminating && (e.Conditions.Serving == nil || *e.Conditions.Serving)
}
