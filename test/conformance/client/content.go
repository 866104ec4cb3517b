package client

import (
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
)

// rejects is the rule for everything Envoy is known to refuse.
const rejects = "content/envoy-rejects"

// route checks what Envoy refuses of a route configuration.
func (o *opened) route(m *routev3.RouteConfiguration) {
	names, domains := map[string]bool{}, map[string]string{}
	for _, vh := range m.VirtualHosts {
		if names[vh.Name] {
			o.report(rejects, "virtual host %q occurs twice", vh.Name)
		}
		names[vh.Name] = true
		for _, d := range vh.Domains {
			d = strings.ToLower(d)
			if other, ok := domains[d]; ok {
				o.report(rejects, "domain %q is in virtual hosts %q and %q", d, other, vh.Name)
			}
			domains[d] = vh.Name
		}
		for i, r := range vh.Routes {
			if w := r.GetRoute().GetWeightedClusters(); w != nil {
				var total uint64
				for _, c := range w.Clusters {
					total += uint64(c.GetWeight().GetValue())
				}
				if total == 0 || total > 1<<32-1 {
					o.report(rejects, "virtual host %q, route %d: the weights add up to %d", vh.Name, i, total)
				}
			}
		}
	}
}

// listener checks what Envoy refuses of a listener, and that its routes come over ADS.
func (o *opened) listener(m *listenerv3.Listener) {
	matches := map[string]int{}
	for i, fc := range m.FilterChains {
		match, err := proto.MarshalOptions{Deterministic: true}.Marshal(fc.FilterChainMatch)
		if err != nil {
			o.report("content/valid", "filter chain %d: %v", i, err)
			continue
		}
		if first, ok := matches[string(match)]; ok && m.FilterChainMatcher == nil {
			o.report(rejects, "filter chains %d and %d match the same", first, i)
		}
		matches[string(match)] = i
		o.chain(fmt.Sprintf("filter chain %d", i), fc)
	}
	if m.DefaultFilterChain != nil {
		o.chain("the default filter chain", m.DefaultFilterChain)
	}
	if len(m.FilterChains) == 0 && m.DefaultFilterChain == nil && m.GetUdpListenerConfig() == nil && m.GetInternalListener() == nil {
		o.report(rejects, "there is no filter chain")
	}
	if m.Address == nil && m.GetInternalListener() == nil {
		o.report(rejects, "there is no address")
	}
}

// chain checks that a chain of network filters ends in one that ends chains, and only there.
func (o *opened) chain(where string, fc *listenerv3.FilterChain) {
	for i, f := range fc.Filters {
		inner, err := f.GetTypedConfig().UnmarshalNew()
		if err != nil {
			continue // reported as an unknown type
		}
		hcm, isHTTP := inner.(*hcmv3.HttpConnectionManager)
		_, isTCP := inner.(*tcpv3.TcpProxy)
		if last := i == len(fc.Filters)-1; (isHTTP || isTCP) != last {
			o.report(rejects, "%s: filter %q is %s", where, f.Name, map[bool]string{true: "the last and does not end the chain", false: "not the last and ends the chain"}[last])
		}
		if isHTTP {
			o.connectionManager(where, hcm)
		}
	}
	if len(fc.Filters) == 0 {
		o.report(rejects, "%s has no filters", where)
	}
}

func (o *opened) connectionManager(where string, m *hcmv3.HttpConnectionManager) {
	if n := len(m.HttpFilters); n == 0 || !m.HttpFilters[n-1].GetTypedConfig().MessageIs(routerType()) {
		o.report(rejects, "%s: the last HTTP filter is no router", where)
	}
	if rds := m.GetRds(); rds != nil {
		o.ads(where+": the routes", rds.ConfigSource)
	}
	if inline := m.GetRouteConfig(); inline != nil {
		o.route(inline)
	}
}

// cluster checks what Envoy refuses of a cluster, and that its endpoints come over ADS.
func (o *opened) cluster(m *clusterv3.Cluster) {
	eds := m.GetType() == clusterv3.Cluster_EDS && m.GetClusterType() == nil
	switch {
	case eds && m.EdsClusterConfig == nil:
		o.report(rejects, "it is of type EDS and has no eds_cluster_config")
	case eds:
		o.ads("the endpoints", m.EdsClusterConfig.EdsConfig)
	case m.EdsClusterConfig != nil:
		o.report(rejects, "it is not of type EDS and has an eds_cluster_config")
	}
	if a := m.LoadAssignment; a != nil && eds {
		o.report(rejects, "it is of type EDS and has a load_assignment")
	}
	names := map[string]bool{}
	for _, tm := range m.TransportSocketMatches {
		if names[tm.Name] {
			o.report(rejects, "transport socket match %q occurs twice", tm.Name)
		}
		names[tm.Name] = true
	}
}

func (o *opened) ads(what string, s *corev3.ConfigSource) {
	if s.GetAds() == nil {
		o.report("content/ads", "%s do not come over ADS but %v", what, s)
	}
}

// EDSName is the name under which a cluster asks for its assignment, empty if it does not.
func EDSName(m *clusterv3.Cluster) string {
	if m.GetClusterType() != nil || m.GetType() != clusterv3.Cluster_EDS {
		return ""
	}
	if n := m.GetEdsClusterConfig().GetServiceName(); n != "" {
		return n
	}
	return m.Name
}

// RouteNames lists the route configurations a listener asks for.
func RouteNames(m *listenerv3.Listener) []string {
	var names []string
	each(m, func(m proto.Message) {
		if rds, ok := m.(*hcmv3.Rds); ok && !slices.Contains(names, rds.RouteConfigName) {
			names = append(names, rds.RouteConfigName)
		}
	})
	return names
}

// ClusterRefs lists the clusters that a listener or a route configuration sends to.
func ClusterRefs(m proto.Message) []string {
	seen := map[string]bool{}
	add := func(name string) {
		if name != "" {
			seen[name] = true
		}
	}
	each(m, func(m proto.Message) {
		switch m := m.(type) {
		case *routev3.RouteAction:
			add(m.GetCluster())
			for _, p := range m.RequestMirrorPolicies {
				add(p.Cluster)
			}
		case *routev3.WeightedCluster:
			for _, c := range m.Clusters {
				add(c.Name)
			}
		case *tcpv3.TcpProxy:
			add(m.GetCluster())
			for _, c := range m.GetWeightedClusters().GetClusters() {
				add(c.Name)
			}
		}
	})
	names := make([]string, 0, len(seen))
	for n := range seen {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
