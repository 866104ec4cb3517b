// Package cluster translates services and their traffic policy into clusters.
//
// It owns which clusters exist, one for every port of every service and one more for every subset, and what the fields of
// a policy become. Clusters do not depend on endpoints, except where Envoy resolves the names of endpoints itself, and
// for the identities of endpoints. A change of endpoints therefore runs nothing here. The package starts no goroutines.
package cluster

import (
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Map is a set of resources by name.
type Map = omap.Map[omap.Name, *resource.Resource]

// Queries are the layers of clusters.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	traffic  *traffic.Queries
	scope    *scope.Queries
	*layer.Hosts[*resource.Resource]
	// Passing are the clusters through which gateways forward TLS of the mesh.
	Passing *layer.Hosts[*resource.Resource]
	// Routed are the clusters of the services to which gateways route.
	Routed query.Collection[RoutedKey, *resource.Resource]
	// Messages are the clusters of a host before they are encoded, for readers that look into them. A cell exists only
	// while something reads it: encoding does not.
	Messages query.Query[layer.HostForClient, []*clusterv3.Cluster]
	// Fixed are the clusters that every sidecar has.
	Fixed query.Query[mesh.Families, Map]
	// GatewayFixed are the clusters that gateways have whatever the objects are.
	GatewayFixed query.Query[GatewayFixedKey, Map]
	// Demand is the cluster that sidecars with hosts on demand have.
	Demand query.Query[service.All, Map]
	// Inbound are the clusters for the ports that a workload serves.
	Inbound query.Query[InboundKey, Map]
}

// RoutedKey names the clusters of the services that some gateways call.
type RoutedKey struct {
	gateway.Routing
	scope.ClientInSet
}

// In implements layer.Selection.
func (k RoutedKey) In() scope.ClientInSet { return k.ClientInSet }

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, tr *traffic.Queries, sc *scope.Queries, served *gateway.Queries) *Queries {
	q := &Queries{tables: t, services: s, traffic: tr, scope: sc}
	q.Messages = query.Define(g, "clusterMessages", func(a, b []*clusterv3.Cluster) bool {
		return slices.EqualFunc(a, b, func(a, b *clusterv3.Cluster) bool { return proto.Equal(a, b) })
	}, func(r *query.Reader, at layer.HostForClient) ([]*clusterv3.Cluster, bool) {
		list := q.clusters(r, at)
		return list, len(list) > 0
	})
	hosts := layer.Translator[*clusterv3.Cluster, *resource.Resource]{Translate: q.clusters, Encode: encode, DependsOnClient: q.dependsOnClient, Hide: resource.Hide}
	q.Hosts = layer.DefineHosts(g, layer.Names{Base: "clusters", Scoped: "scopedClusters", Client: "ownClusters"}, s, tr, sc, hosts)
	q.Routed = layer.DefineSelected(g, "routedClusters", q.Hosts, tr, sc, hosts, func(r *query.Reader, k RoutedKey) scope.Hosts {
		return served.RoutedHosts(r, k.Routing)
	})
	q.Passing = layer.DefineHosts(g, layer.Names{Base: "passingClusters", Scoped: "scopedPassingClusters", Client: "ownPassingClusters"}, s, tr, sc,
		layer.Translator[*clusterv3.Cluster, *resource.Resource]{Translate: q.passing, Encode: encode, DependsOnClient: q.dependsOnClient, Hide: resource.Hide})
	q.Fixed = query.Define(g, "fixedClusters", Map.Equal, q.fixed)
	q.Demand = query.Define(g, "demandCluster", Map.Equal, q.onDemand)
	q.GatewayFixed = query.Define(g, "gatewayFixedClusters", Map.Equal, q.gatewayFixed)
	q.Inbound = query.Define(g, "inboundClusters", Map.Equal, q.inbound)
	return q
}

// dependsOnClient reports whether the client can matter to a host's clusters: if rules select it, if the clusters hold the
// endpoints, through its locality, if the service or its rules differ for gateways or for proxies of IPv6 and it is one, or if its
// requests name its workload.
func (q *Queries) dependsOnClient(r *query.Reader, at layer.HostForClient) bool {
	s, ok := q.services.Service.Get(r, at.HostView)
	if !ok || at.Rules != (traffic.SelectingRules{}) || resolves(s) || at.Versions.One() && s.ResolvesNames() || at.OtherAuthority && !s.External {
		return ok
	}
	if !at.Gateway || s.DiffersForGateways() {
		return at.Gateway
	}
	policy, ok := q.traffic.Policy.Get(r, at.HostView)
	return ok && policy.Credential
}

// translation is the translation of one service for a client.
type translation struct {
	*Queries
	r      *query.Reader
	s      *service.Service
	policy *traffic.Policy
	client traffic.Client
}

// encode turns a cluster into a resource. All clusters are encoded here.
func encode(c *clusterv3.Cluster) *resource.Resource {
	return resource.New(resource.Cluster, c.Name, c)
}

func (q *Queries) clusters(r *query.Reader, at layer.HostForClient) []*clusterv3.Cluster {
	s, ok := q.services.Service.Get(r, at.HostView)
	if !ok {
		return nil
	}
	return q.ofPorts(r, at, s, translation.build)
}

// ofPorts returns a cluster for each port of a service, and for each subset of a port; build makes one, or returns nil.
func (q *Queries) ofPorts(r *query.Reader, at layer.HostForClient, s *service.Service, build func(t translation, p mesh.Port, subset *networking.Subset) *clusterv3.Cluster) []*clusterv3.Cluster {
	t := translation{q, r, s, q.traffic.PolicyFor(r, at.HostView, at.Rules), at.Client}
	var out []*clusterv3.Cluster
	add := func(p mesh.Port, subset *networking.Subset) {
		if c := build(t, p, subset); c != nil {
			out = append(out, c)
		}
	}
	for _, p := range s.Ports {
		if p.Protocol == mesh.UDP {
			continue
		}
		add(p, nil)
		if t.policy == nil {
			continue
		}
		for _, subset := range t.policy.Subsets {
			add(p, subset)
		}
	}
	return out
}

// build returns the cluster of a port, or of a subset of it if subset is not nil. It is nil if Envoy has no name to resolve.
func (t translation) build(p mesh.Port, subset *networking.Subset) *clusterv3.Cluster {
	name := envoy.OutboundCluster(p.Number, subset.GetName(), t.s.Host)
	settings := t.traffic.Settings(t.r, t.policy, subset, p.Number)
	c := t.discoveryCluster(p, name, settings, subset)
	if c == nil {
		return nil
	}
	c.AltStatName = t.outboundStat(name, p, subset.GetName())
	t.setLoadBalancing(c, settings)
	t.setLimits(c, settings)
	t.setOutlierDetection(c, settings.OutlierDetection)
	http := t.httpOptions(p, settings)
	t.setTLS(c, &http, p, subset, settings.TLS)
	http.NamesWorkload = t.client.OtherAuthority && !t.s.External && (p.Protocol.IsHTTP() || p.Protocol.Sniffed()) && envoy.SpeaksMeshTLS(c)
	if pp := settings.ProxyProtocol; pp != nil {
		envoy.SendProxyProtocol(c, pp.Version == networking.TrafficPolicy_ProxyProtocol_V2)
	}
	envoy.SetHTTP(c, http)
	c.Metadata = envoy.Metadata(t.metadata(p, subset))
	t.nameService(t.r, c.Metadata, t.s.Host, t.s.Namespace)
	return c
}

// nameService adds to the metadata of a cluster what tags of metrics say of its service, if anybody measures.
func (q *Queries) nameService(r *query.Reader, m *corev3.Metadata, host, namespace string) {
	if !q.scope.Measured(r) {
		return
	}
	name, _, ok := mesh.ClusterHost(host, q.tables.Domain())
	if !ok {
		name = host
	}
	envoy.SetService(m, host, name, namespace)
}

// discoveryCluster returns the cluster with what depends on how its endpoints are found. It is nil if Envoy has no name to resolve.
func (t translation) discoveryCluster(p mesh.Port, name string, settings traffic.Settings, subset *networking.Subset) *clusterv3.Cluster {
	timeout := t.tables.ConnectTimeout(t.r)
	switch {
	case passthrough(settings):
	case t.s.Resolution == mesh.Static, t.s.Resolution == mesh.Passthrough && t.client.Gateway:
		return envoy.EDSCluster(name, timeout)
	case t.s.Resolution == mesh.DynamicDNS:
		return envoy.DynamicCluster(name, timeout, t.families())
	case resolves(t.s):
		return t.dnsCluster(p, name, timeout, settings, subset)
	}
	c := envoy.OriginalDestinationCluster(name, timeout)
	if t.s.Resolution == mesh.Passthrough && !t.s.Headless && p.Target() != p.Number {
		envoy.OverridePort(c, p.Target())
	}
	return c
}

// families are the IP versions of the client's addresses.
func (t translation) families() mesh.Families {
	return t.client.Versions.Families(t.tables.DualStack())
}

// resolves reports whether Envoy resolves the names of a service's endpoints.
func resolves(s *service.Service) bool {
	return s.Resolution == mesh.DNS || s.Resolution == mesh.DNSRoundRobin
}

// dnsCluster returns a cluster whose endpoints Envoy resolves; nil if there are none.
func (t translation) dnsCluster(p mesh.Port, name string, timeout time.Duration, settings traffic.Settings, subset *networking.Subset) *clusterv3.Cluster {
	one := t.s.Resolution == mesh.DNSRoundRobin
	list := t.dnsEndpoints(p, subset)
	if len(list) == 0 {
		return nil
	}
	if one {
		list = list[:1] // this type of cluster takes one name
	}
	var preference *traffic.Preference
	if t.traffic.DependsOnLocality(t.r, t.s.Near, t.policy) {
		preference = t.traffic.Preference(t.r, t.s.Near, settings)
	}
	groups := preference.Arrange(list, t.client.Site)
	return envoy.DNSCluster(name, timeout, envoy.DNSOptions{Refresh: t.tables.DNSRefresh(t.r), One: one, Families: t.families()}, envoy.Assignment(name, groups, t.s.External, envoy.Peers{On: t.scope.Measured(t.r), Namespace: t.s.Namespace}))
}

// dnsEndpoints are the endpoints of a service that Envoy resolves. An endpoint without an address, which another ServiceEntry for the host may have, is
// reached through a gateway of its network, and Envoy has nothing to resolve. The host itself is an endpoint, without labels, if some declaration says of
// no other.
func (t translation) dnsEndpoints(p mesh.Port, subset *networking.Subset) []mesh.PortEndpoint {
	var out []mesh.PortEndpoint
	for _, e := range t.services.Endpoints(t.r, t.s, p.Number) {
		if e.Health == mesh.Healthy && e.Address != "" && e.Has(subset.GetLabels()) {
			out = append(out, e)
		}
	}
	if port, ok := t.services.ItselfAt(t.r, t.s, p.Number); ok && !mesh.IsWildcard(t.s.Host) && len(subset.GetLabels()) == 0 {
		out = append(out, mesh.PortEndpoint{Endpoint: &mesh.Endpoint{Address: t.s.Host}, Port: port})
	}
	return out
}

func (t translation) metadata(p mesh.Port, subset *networking.Subset) map[string]*structpb.Value {
	m := map[string]*structpb.Value{
		"default_original_port": structpb.NewNumberValue(float64(p.Number)),
		"services":              envoy.ServiceMetadata(t.s.Host, t.s.Name, t.s.Namespace),
	}
	if t.policy != nil {
		m["config"] = structpb.NewStringValue(configPath(t.policy.Objects[0]))
	}
	if subset != nil {
		m["subset"] = structpb.NewStringValue(subset.Name)
	}
	if t.s.External {
		m["external"] = structpb.NewBoolValue(true)
	}
	return m
}

// configPath is the path by which dashboards made for Istio know an object.
func configPath(k api.Key) string {
	kind := "destination-rule"
	if k.Kind != api.KindDestinationRule {
		kind = k.Kind
	}
	return "/apis/networking.istio.io/v1alpha3/namespaces/" + k.Namespace + "/" + kind + "/" + k.Name
}

// passthrough reports whether the policy sends connections to the address that the client dialled.
func passthrough(s traffic.Settings) bool {
	return s.LoadBalancer.GetSimple() == networking.LoadBalancerSettings_PASSTHROUGH
}
