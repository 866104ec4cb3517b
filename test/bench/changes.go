package main

import (
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// edit is one atomic change of the configuration.
type edit struct {
	set []*api.Object
	del []api.Key
}

// events are the edit as a source would report it.
func (e edit) events() []source.Event {
	list := make([]source.Event, 0, len(e.set)+len(e.del))
	for _, o := range e.set {
		list = append(list, source.Event{Key: o.Key, Object: o})
	}
	for _, k := range e.del {
		list = append(list, source.Event{Key: k})
	}
	return list
}

// step is a change and the resources that the clients must receive for it.
type step struct {
	edit  edit
	round *round
}

// change is a kind of change that a case makes again and again.
type change struct {
	name string
	// step is the n-th one; no two after each other are the same.
	step func(w *world, n int) step
	// before makes n steps possible, after reverts n steps. Both may be nil.
	before, after func(w *world, n int) step
	// scoped: only the clients of the first namespace with a Sidecar are concerned.
	scoped bool
}

// need is a round that waits for that many resources and removals of each type.
func need(clusters, endpoints, routes int) *round {
	r := &round{}
	r.need[resource.Cluster], r.need[resource.Endpoint] = clusters, endpoints
	r.need[resource.Route] = routes
	return r
}

func endpointChange() change {
	return change{
		name: "endpoint",
		step: func(w *world, n int) step {
			return step{edit{set: []*api.Object{w.service(plain(n), n+1)}}, need(0, 1, 0)}
		},
	}
}

func routeChange() change {
	return change{
		name: "virtualservice",
		step: func(w *world, n int) step {
			return step{edit{set: []*api.Object{w.route(withRules(n), n+1)}}, need(0, 0, 1)}
		},
	}
}

// policyChange touches the clusters of the service and of its two subsets; their assignments are due again, because
// Envoy warms a changed cluster again.
func policyChange() change {
	return change{
		name: "destinationrule",
		step: func(w *world, n int) step {
			return step{edit{set: []*api.Object{w.policy(withRules(n), n+1)}}, need(3, 3, 0)}
		},
	}
}

// added is a service that the world does not have yet, in a namespace without streams.
func added(w *world, n int) int { return w.services - w.services%namespaces + plain(n) }

// addServices adds those numbered from..from+n.
func addServices(w *world, from, n int) step {
	var e edit
	var names []string
	for i := from; i < from+n; i++ {
		e.set = append(e.set, w.service(added(w, i), 0))
		names = append(names, w.cluster(added(w, i)))
	}
	r := need(n, n, 1)
	r.reply[resource.Cluster] = follow(names, nil)
	return step{e, r}
}

// removeServices removes them again. The assignments go with the clusters, unless the client has given them back before.
func removeServices(w *world, from, n int) step {
	var e edit
	var names []string
	for i := from; i < from+n; i++ {
		e.del = append(e.del, w.service(added(w, i), 0).Key)
		names = append(names, w.cluster(added(w, i)))
	}
	r := need(n, 0, 1)
	r.may[resource.Endpoint] = n
	r.reply[resource.Cluster] = follow(nil, names)
	return step{e, r}
}

func serviceAdded() change {
	return change{
		name:  "service-add",
		step:  func(w *world, n int) step { return addServices(w, n, 1) },
		after: func(w *world, n int) step { return removeServices(w, 0, n) },
	}
}

func serviceRemoved() change {
	return change{
		name:   "service-remove",
		step:   func(w *world, n int) step { return removeServices(w, n, 1) },
		before: func(w *world, n int) step { return addServices(w, 0, n) },
	}
}

// scopeChange replaces one host of a Sidecar by another one: a cluster comes, a cluster goes, the routes change.
func scopeChange() change {
	return change{
		name: "sidecar",
		step: func(w *world, n int) step {
			r := need(2, 1, 1)
			r.may[resource.Endpoint] = 1
			r.only = func(s *stream) bool { return s.script.namespace == firstScoped }
			r.reply[resource.Cluster] = follow([]string{w.cluster(scopeChoice(n + 1))}, []string{w.cluster(scopeChoice(n))})
			return step{edit{set: []*api.Object{w.sidecar(firstScoped, n+1)}}, r}
		},
		scoped: true,
	}
}
