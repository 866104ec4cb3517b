package main

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// edit is one atomic change of the configuration.
type edit struct {
	set []*api.Object
	del []api.Key
}

// change is a kind of change that a case makes again and again.
type change struct {
	name string
	// edit is the n-th one; no two after each other are the same.
	edit func(w *world, n int) edit
	// round is what the clients must receive of it.
	round func(n int) *round
	// before makes n edits possible, after takes back what n of them left. Both may be nil.
	before, after func(w *world, n int) edit
	// scoped: only the clients of the first namespace with a Sidecar are concerned.
	scoped bool
}

// need is a round that waits for that many resources and removals of each type.
func need(clusters, endpoints, listeners, routes int) *round {
	r := &round{}
	r.need[resource.Cluster], r.need[resource.Endpoint] = clusters, endpoints
	r.need[resource.Listener], r.need[resource.Route] = listeners, routes
	return r
}

// clusterName is the cluster, and the assignment, of a service of the world.
func clusterName(i int) string { return fmt.Sprintf("outbound|80||%s", host(i)) }

func endpointChange() change {
	return change{
		name: "endpoint",
		edit: func(w *world, n int) edit {
			return edit{set: []*api.Object{w.service(plain(n), n+1)}}
		},
		round: func(int) *round { return need(0, 1, 0, 0) },
	}
}

func routeChange() change {
	return change{
		name: "virtualservice",
		edit: func(w *world, n int) edit {
			return edit{set: []*api.Object{w.route(withRules(n), n+1)}}
		},
		round: func(int) *round { return need(0, 0, 0, 1) },
	}
}

// policyChange touches the clusters of the service and of its two subsets; their assignments are due again, because
// Envoy warms a changed cluster anew.
func policyChange() change {
	return change{
		name: "destinationrule",
		edit: func(w *world, n int) edit {
			return edit{set: []*api.Object{w.policy(withRules(n), n+1)}}
		},
		round: func(int) *round { return need(3, 3, 0, 0) },
	}
}

// added is a service that the world does not have yet, in a namespace without streams.
func added(w *world, n int) int { return w.services - w.services%namespaces + plain(n) }

func addService(w *world, n int) edit { return edit{set: []*api.Object{w.service(added(w, n), 0)}} }

func removeService(w *world, n int) edit {
	return edit{del: []api.Key{w.service(added(w, n), 0).Key}}
}

// all joins the first n of a kind of edit into one.
func all(n int, w *world, one func(*world, int) edit) edit {
	var sum edit
	for i := range n {
		e := one(w, i)
		sum.set, sum.del = append(sum.set, e.set...), append(sum.del, e.del...)
	}
	return sum
}

func serviceAdded(w *world) change {
	return change{
		name: "service-add",
		edit: addService,
		round: func(n int) *round {
			r := need(1, 1, 0, 1)
			r.reply[resource.Cluster] = subscribeTo(resource.Endpoint, clusterName(added(w, n)))
			return r
		},
		after: func(w *world, n int) edit { return all(n, w, removeService) },
	}
}

func serviceRemoved(w *world) change {
	return change{
		name: "service-remove",
		edit: removeService,
		round: func(n int) *round {
			r := need(1, 0, 0, 1)
			r.reply[resource.Cluster] = unsubscribeFrom(resource.Endpoint, clusterName(added(w, n)))
			return r
		},
		before: func(w *world, n int) edit { return all(n, w, addService) },
	}
}

// scopeChange replaces one host of a Sidecar by another one: a cluster comes, a cluster goes, the routes change.
func scopeChange() change {
	return change{
		name: "sidecar",
		edit: func(w *world, n int) edit {
			return edit{set: []*api.Object{w.sidecar(firstScoped, n+1)}}
		},
		round: func(n int) *round {
			r := need(2, 1, 0, 1)
			r.only = func(s *stream) bool { return s.script.namespace == firstScoped }
			r.reply[resource.Cluster] = subscribeTo(resource.Endpoint, clusterName(scopeChoice(n+1)))
			return r
		},
		scoped: true,
	}
}
