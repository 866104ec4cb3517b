package main

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
)

// TestWorld checks that a world is the same each time, that it is valid, and that it has the objects that its comment lists.
func TestWorld(t *testing.T) {
	a, b := newWorld(1000, false), newWorld(1000, false)
	kinds := make(map[string]int)
	for i, o := range a.all {
		if o.Key != b.all[i].Key || o.Hash != b.all[i].Hash {
			t.Fatalf("two worlds differ in %v", o.Key)
		}
		if problems := api.Validate(o); api.Failed(problems) {
			t.Fatalf("%v is invalid: %v", o.Key, problems)
		}
		kinds[o.Kind]++
	}
	want := map[string]int{"ServiceEntry": 1000, "WorkloadEntry": 200, "VirtualService": 100 + 500, "DestinationRule": 100 + 100, "Sidecar": scopes}
	for k, n := range want {
		if kinds[k] != n {
			t.Errorf("%d of %s, want %d", kinds[k], k, n)
		}
	}
}

// TestChangesChange: a change that equals the state before it would be waited for until the end of patience.
func TestChangesChange(t *testing.T) {
	w := newWorld(1000, false)
	for _, c := range []change{endpointChange(), routeChange(), policyChange(), scopeChange()} {
		now := make(map[api.Key]*api.Object)
		for _, o := range w.all {
			now[o.Key] = o
		}
		for n := range 1000 {
			for _, o := range c.step(w, n).edit.set {
				if was := now[o.Key]; was == nil || was.Hash == o.Hash {
					t.Fatalf("%s %d does not change %v", c.name, n, o.Key)
				}
				now[o.Key] = o
			}
		}
	}
}

// TestEditedServices: edited services lie outside the namespaces of the clients and have no private rules.
func TestEditedServices(t *testing.T) {
	for k := range 100 {
		for _, i := range []int{plain(k), withRules(k)} {
			if ns := i % namespaces; ns < firstScoped+scopes+wide || private(i) || selected(i) {
				t.Errorf("service %d of namespace %d is no service to edit", i, ns)
			}
		}
		if ruled(plain(k)) || !ruled(withRules(k)) {
			t.Errorf("rules of services %d and %d are mixed up", plain(k), withRules(k))
		}
	}
}
