// Package cluster translates services and their policy into clusters.
//
// It owns which clusters exist: one for every port of every service, and one more for every subset. Clusters do not
// depend on endpoints (except where Envoy resolves names itself), so that endpoint changes run nothing here. The package
// starts no goroutines; it must not import other translators, the store or sources.
package cluster

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Map is a set of resources by name.
type Map = omap.Map[omap.Name, *resource.Resource]

// Queries are the clusters.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	traffic  *traffic.Queries
	scope    *scope.Queries
	at       *query.Query[service.View, []*resource.Resource]
	// Base are the clusters of what all see; Scoped those of a set.
	Base   *query.Collection[service.All, *resource.Resource]
	Scoped *query.Collection[scope.Set, *resource.Resource]
	// Fixed are the clusters every sidecar has.
	Fixed *query.Query[service.All, Map]
	// Inbound are those of what a workload serves.
	Inbound *query.Query[Inbound, Map]
}

// Define adds the queries.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, tr *traffic.Queries, sc *scope.Queries) *Queries {
	q := &Queries{tables: t, services: s, traffic: tr, scope: sc}
	q.at = query.Define(g, "clusters", layer.Equal, q.clusters)
	q.Base = query.Each(g, "clusters.all",
		func(r *query.Reader, _ service.All) scope.Hosts { return s.PublicHosts(r) },
		q.at, func(_ service.All, host omap.Name) service.View { return service.View{Host: string(host)} })
	scoped := query.Define(g, "scopedClusters", layer.Equal, func(r *query.Reader, h scope.HostIn) ([]*resource.Resource, bool) {
		return layer.Forward(h.Set.Overlay(), sc.View(r, h).Layer, func(view string) []*resource.Resource {
			list, _ := q.at.Get(r, service.View{Host: h.Host, Layer: view})
			return list
		}, resource.Hide)
	})
	q.Scoped = query.Each(g, "scopedClusters.all",
		func(r *query.Reader, s scope.Set) scope.Hosts { return sc.Hosts(r, s) },
		scoped, func(s scope.Set, host omap.Name) scope.HostIn { return scope.HostIn{Host: string(host), Set: s} })
	sameMap := func(a, b Map) bool { return a.Hash() == b.Hash() }
	q.Fixed = query.Define(g, "fixedClusters", sameMap, q.fixed)
	q.Inbound = query.Define(g, "inboundClusters", sameMap, q.inbound)
	return q
}

func (q *Queries) clusters(r *query.Reader, v service.View) ([]*resource.Resource, bool) {
	s, ok := q.services.Service.Get(r, v)
	if !ok {
		return nil, false
	}
	policy, _ := q.traffic.Policy.Get(r, v)
	var out []*resource.Resource
	for _, p := range s.Ports {
		if p.Protocol == mesh.UDP {
			continue
		}
		out = append(out, q.one(r, s, p, policy, nil))
		if policy == nil {
			continue
		}
		for _, subset := range policy.Subsets {
			out = append(out, q.one(r, s, p, policy, subset))
		}
	}
	return out, true
}

func (q *Queries) one(r *query.Reader, s *service.Service, p mesh.Port, policy *traffic.Policy, subset *networking.Subset) *resource.Resource {
	name := envoy.OutboundCluster(p.Number, subset.GetName(), s.Host)
	settings := policy.ForPort(subset, p.Number)
	c := q.discovery(r, s, p, name, settings, subset)
	c.AltStatName = name + ";"
	apply(c, p, settings)
	c.Metadata = envoy.Metadata(metadata(s, p, policy, subset))
	return resource.New(resource.Cluster, name, c)
}

// discovery is the cluster as far as its endpoints are concerned.
func (q *Queries) discovery(r *query.Reader, s *service.Service, p mesh.Port, name string, settings traffic.Settings, subset *networking.Subset) *clusterv3.Cluster {
	timeout := q.tables.ConnectTimeout(r)
	if passthrough(settings) {
		return envoy.OriginalDestinationCluster(name, timeout)
	}
	switch s.Resolution {
	case mesh.Static:
		return envoy.EDSCluster(name, timeout)
	case mesh.DynamicDNS:
		return envoy.DynamicCluster(name, timeout)
	case mesh.DNS, mesh.DNSRoundRobin:
		return envoy.DNSCluster(name, timeout, s.Resolution == mesh.DNSRoundRobin, envoy.Assignment(name, q.names(r, s, p, subset)))
	}
	return envoy.OriginalDestinationCluster(name, timeout)
}

// names are the endpoints of a service that Envoy resolves itself; without any, the host is one.
func (q *Queries) names(r *query.Reader, s *service.Service, p mesh.Port, subset *networking.Subset) []envoy.Endpoint {
	list := q.services.Endpoints(r, s, p.Number)
	service.ByLocality(list)
	var out []envoy.Endpoint
	for _, e := range list {
		if mesh.Selects(subset.GetLabels(), e.Labels) {
			out = append(out, envoy.Endpoint{Endpoint: e.Endpoint, Port: e.Port})
		}
	}
	if len(list) == 0 && !mesh.IsWildcard(s.Host) {
		out = append(out, envoy.Endpoint{Endpoint: &mesh.Endpoint{Address: s.Host}, Port: p.Target()})
	}
	if s.Resolution == mesh.DNSRoundRobin && len(out) > 1 {
		out = out[:1] // the cluster type takes one name
	}
	return out
}

func metadata(s *service.Service, p mesh.Port, policy *traffic.Policy, subset *networking.Subset) map[string]*structpb.Value {
	m := map[string]*structpb.Value{
		"default_original_port": structpb.NewNumberValue(float64(p.Number)),
		"services":              envoy.ServiceMetadata(s.Host, s.Name, s.Namespace),
	}
	if policy != nil {
		m["config"] = structpb.NewStringValue(path(policy.Objects[0]))
	}
	if subset != nil {
		m["subset"] = structpb.NewStringValue(subset.Name)
	}
	if s.External {
		m["external"] = structpb.NewBoolValue(true)
	}
	return m
}

// path is how dashboards know an object.
func path(k api.Key) string {
	kind := "destination-rule"
	if k.Kind != state.KindDestinationRule {
		kind = k.Kind
	}
	return "/apis/networking.istio.io/v1alpha3/namespaces/" + k.Namespace + "/" + kind + "/" + k.Name
}

func (q *Queries) fixed(r *query.Reader, _ service.All) (Map, bool) {
	timeout := q.tables.ConnectTimeout(r)
	pass := envoy.OriginalDestinationCluster(envoy.PassthroughCluster, timeout)
	envoy.SetHTTP(pass, envoy.UpstreamAsDownstream, nil)
	in := envoy.OriginalDestinationCluster(envoy.InboundPassthroughCluster, timeout)
	envoy.SetHTTP(in, envoy.UpstreamAsDownstream, nil)
	envoy.BindSource(in, envoy.InboundBindAddress)
	list := []*clusterv3.Cluster{pass, in, envoy.EmptyCluster(envoy.BlackHoleCluster, timeout)}
	if q.tables.OutboundMode(r) == state.ByName {
		dynamic := envoy.DynamicCluster(envoy.DynamicDNSCluster, timeout)
		envoy.SetHTTP(dynamic, envoy.UpstreamAsDownstream, nil)
		list = append(list, dynamic)
	}
	return asMap(list...), true
}

func asMap(list ...*clusterv3.Cluster) Map {
	var changes []omap.Change[omap.Name, *resource.Resource]
	for _, c := range list {
		changes = append(changes, omap.Put(omap.Name(c.Name), resource.New(resource.Cluster, c.Name, c)))
	}
	return Map{}.With(changes...)
}

// Inbound names the clusters of what a workload serves.
type Inbound struct {
	Ports string // see service.ParseInbound
	// Direct says that nothing redirects: the application is reached on the loopback address.
	Direct bool
}

func (q *Queries) inbound(r *query.Reader, k Inbound) (Map, bool) {
	timeout := q.tables.ConnectTimeout(r)
	var list []*clusterv3.Cluster
	local := k.Direct || q.tables.InboundLocalhost(r)
	for _, p := range service.ParseInbound(k.Ports) {
		name := envoy.InboundCluster(p.Number)
		var c *clusterv3.Cluster
		if local {
			c = envoy.StaticCluster(name, timeout, envoy.Address(envoy.Loopback, p.Number))
		} else {
			c = envoy.OriginalDestinationCluster(name, timeout)
			envoy.BindSource(c, envoy.InboundBindAddress)
		}
		c.AltStatName = name + ";"
		envoy.SetHTTP(c, upstream(mesh.Port{Protocol: p.Protocol}, nil), nil)
		c.Metadata = envoy.Metadata(map[string]*structpb.Value{"services": envoy.ServiceMetadata(p.Host, p.Name, p.Namespace)})
		list = append(list, c)
	}
	return asMap(list...), true
}

// passthrough reports whether the policy asks for the address the client dialled.
func passthrough(s traffic.Settings) bool {
	return s.LoadBalancer.GetSimple() == networking.LoadBalancerSettings_PASSTHROUGH
}
