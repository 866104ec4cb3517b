package main

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
)

const (
	namespaces = 100
	// privateRoutes is how many VirtualServices each namespace has for itself.
	privateRoutes = 5
	// scopeHosts is how many hosts a Sidecar lets in.
	scopeHosts = 120
	// Namespaces from firstScoped on, as many as scopes, have a Sidecar; those before it see everything.
	firstScoped, scopes = 20, 20
	// scopeReach bounds the services that Sidecars and private rules name, so that they are the same ones in a mesh of
	// 1,000 services and in one of 10,000.
	scopeReach = 1000
)

// world is a mesh of a given size: services in 100 namespaces with two endpoints each, one in ten with its endpoints
// in WorkloadEntries; one service in fifty private to its namespace; a VirtualService and a DestinationRule with two
// subsets, public, for one service in ten; five private VirtualServices and one private DestinationRule in every
// namespace; a Sidecar in each of 20 namespaces. The same size gives the same objects.
//
// The services' hosts are names outside the cluster's domain, as most hosts of ServiceEntries are. Names inside it can
// be called by short forms from their own namespace, which makes every service an entry of that namespace's own layer;
// clusterNames asks for such a world.
type world struct {
	services     int
	clusterNames bool
	all          []*api.Object // made once: objects are immutable
}

func namespace(n int) string { return fmt.Sprintf("ns-%02d", n) }

func (w *world) host(i int) string {
	domain := "mesh.example"
	if w.clusterNames {
		domain = "svc.cluster.local"
	}
	return fmt.Sprintf("svc-%d.%s.%s", i, namespace(i%namespaces), domain)
}

// cluster is the name of a service's cluster, and of its assignment.
func (w *world) cluster(i int) string { return "outbound|80||" + w.host(i) }

// The properties of the services of a world, by their number.
func private(i int) bool  { return i%50 == 17 }
func selected(i int) bool { return i%10 == 9 }
func ruled(i int) bool    { return i%10 == 3 }

// Which services are edited: some services of the namespaces without streams. Every world has the same number of
// these. plain finds the k-th service without a VirtualService or DestinationRule, withRules the k-th service with
// public ones.
func plain(k int) int     { return 61 + 100*(k%9) + 10*(k/9%4) }
func withRules(k int) int { return plain(k) + 2 }

// address is one of an endpoint. No two endpoints and no two generations of one share it, and no client has it.
func address(i, endpoint, generation int) string {
	return fmt.Sprintf("10.%d.%d.%d", 2*(generation%100)+endpoint, i>>8, i&255)
}

// newWorld makes the objects of a world, services first.
func newWorld(services int, clusterNames bool) *world {
	w := &world{services: services, clusterNames: clusterNames}
	var all []*api.Object
	for i := range w.services {
		all = append(all, w.service(i, 0))
		if selected(i) {
			all = append(all, w.workload(i, 0, 0), w.workload(i, 1, 0))
		}
		if ruled(i) {
			all = append(all, w.route(i, 0), w.policy(i, 0))
		}
	}
	for n := range namespaces {
		for k := range privateRoutes {
			all = append(all, w.privateRoute(n, k))
		}
		all = append(all, w.privatePolicy(n))
		if n >= firstScoped && n < firstScoped+scopes {
			all = append(all, w.sidecar(n, 0))
		}
	}
	w.all = all
	return w
}

// service is a ServiceEntry; with each generation the address of its first endpoint is another one.
func (w *world) service(i, generation int) *api.Object {
	name := fmt.Sprintf("svc-%d", i)
	spec := &networking.ServiceEntry{
		Hosts:      []string{w.host(i)},
		Addresses:  []string{fmt.Sprintf("172.20.%d.%d", i>>8, i&255)},
		Ports:      []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP", TargetPort: 8080}},
		Location:   networking.ServiceEntry_MESH_INTERNAL,
		Resolution: networking.ServiceEntry_STATIC,
	}
	if selected(i) {
		spec.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": name}}
	} else {
		spec.Endpoints = []*networking.WorkloadEntry{workload(i, 0, generation), workload(i, 1, 0)}
	}
	if private(i) {
		spec.ExportTo = []string{"."}
	}
	return object(namespace(i%namespaces), name, spec)
}

func workload(i, endpoint, generation int) *networking.WorkloadEntry {
	return &networking.WorkloadEntry{
		Address: address(i, endpoint, generation),
		Labels:  map[string]string{"app": fmt.Sprintf("svc-%d", i), "version": fmt.Sprintf("v%d", endpoint+1)},
	}
}

func (w *world) workload(i, endpoint, generation int) *api.Object {
	return object(namespace(i%namespaces), fmt.Sprintf("svc-%d-%d", i, endpoint), workload(i, endpoint, generation))
}

// route is the public VirtualService of a service; with each generation its weights are others.
func (w *world) route(i, generation int) *api.Object {
	to := func(subset string, weight int32) *networking.HTTPRouteDestination {
		return &networking.HTTPRouteDestination{Destination: &networking.Destination{Host: w.host(i), Subset: subset}, Weight: weight}
	}
	canary := int32(1 + generation%98)
	spec := &networking.VirtualService{
		Hosts: []string{w.host(i)},
		Http: []*networking.HTTPRoute{
			{
				Name:  "canary",
				Match: []*networking.HTTPMatchRequest{{Uri: prefix("/canary")}},
				Route: []*networking.HTTPRouteDestination{to("v2", 0)},
			},
			{Name: "main", Route: []*networking.HTTPRouteDestination{to("v1", 100-canary), to("v2", canary)}},
		},
	}
	return object(namespace(i%namespaces), fmt.Sprintf("svc-%d", i), spec)
}

func prefix(p string) *networking.StringMatch {
	return &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: p}}
}

// policy is the public DestinationRule of a service; with each generation its connection limit is another one.
func (w *world) policy(i, generation int) *api.Object {
	spec := &networking.DestinationRule{
		Host: w.host(i),
		TrafficPolicy: &networking.TrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{
			Tcp: &networking.ConnectionPoolSettings_TCPSettings{
				MaxConnections: int32(100 + generation),
				ConnectTimeout: durationpb.New(3 * time.Second),
			},
		}},
		Subsets: []*networking.Subset{
			{Name: "v1", Labels: map[string]string{"version": "v1"}},
			{Name: "v2", Labels: map[string]string{"version": "v2"}},
		},
	}
	return object(namespace(i%namespaces), fmt.Sprintf("svc-%d", i), spec)
}

// privateRoute is the k-th VirtualService that namespace n keeps for itself.
func (w *world) privateRoute(n, k int) *api.Object {
	target := w.host((10*(n*privateRoutes+k) + 5) % min(w.services, scopeReach))
	header := map[string]*networking.StringMatch{"x-tenant": {MatchType: &networking.StringMatch_Exact{Exact: namespace(n)}}}
	everything := []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: target}}}
	spec := &networking.VirtualService{
		Hosts:    []string{target},
		ExportTo: []string{"."},
		Http: []*networking.HTTPRoute{
			{Name: "tenant", Match: []*networking.HTTPMatchRequest{{Headers: header}}, Route: everything},
			{Name: "rest", Route: everything},
		},
	}
	return object(namespace(n), fmt.Sprintf("private-%d", k), spec)
}

func (w *world) privatePolicy(n int) *api.Object {
	spec := &networking.DestinationRule{
		Host:     w.host((10*n + 7) % min(w.services, scopeReach)),
		ExportTo: []string{"."},
		TrafficPolicy: &networking.TrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{
			Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: 10},
		}},
	}
	return object(namespace(n), "private", spec)
}

// sidecar is the scope of namespace n; with each generation one of its hosts is another one.
func (w *world) sidecar(n, generation int) *api.Object {
	step := max(1, min(w.services, scopeReach)/scopeHosts)
	var hosts []string
	for i := 1; i < min(w.services, scopeReach) && len(hosts) < scopeHosts-1; i += step {
		if !private(i) {
			hosts = append(hosts, "*/"+w.host(i))
		}
	}
	hosts = append(hosts, "*/"+w.host(scopeChoice(generation)))
	spec := &networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: hosts}}}
	return object(namespace(n), "default", spec)
}

// withWorkloads is the same mesh in which each namespace has so many workloads. All but the first one have a Sidecar of their own, which lets in other
// hosts than the ones of its neighbours do.
func (w *world) withWorkloads(count int) *world {
	more := *w
	more.all = slices.Clip(w.all)
	for n := range namespaces {
		for k := 1; k < count; k++ {
			spec := &networking.Sidecar{
				WorkloadSelector: &networking.WorkloadSelector{Labels: map[string]string{"app": app(k)}},
				Egress:           []*networking.IstioEgressListener{{Hosts: []string{"*/" + w.host(scopedService)}}},
			}
			for i := range w.services {
				if len(spec.Egress[0].Hosts) < scopeHosts && i%count == k && !private(i) && i != scopedService {
					spec.Egress[0].Hosts = append(spec.Egress[0].Hosts, "*/"+w.host(i))
				}
			}
			more.all = append(more.all, object(namespace(n), app(k), spec))
		}
	}
	return &more
}

// app is the label of the k-th workload of each namespace.
func app(k int) string {
	if k == 0 {
		return "client"
	}
	return fmt.Sprintf("client-%d", k)
}

// scopeChoice is the host of a Sidecar that changes with its generation: one of two without rules of their own that are
// not among the others.
func scopeChoice(generation int) int { return 2 + 10*(generation%2) }

// object is the object that decoding a document would give.
func object(namespace, name string, spec proto.Message) *api.Object {
	o, err := api.Object{Key: api.Key{Namespace: namespace, Name: name}, Spec: spec}.Seal()
	if err != nil {
		panic(fmt.Sprintf("the generated world is wrong: %v", err))
	}
	return o
}
