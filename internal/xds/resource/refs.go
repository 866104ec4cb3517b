package resource

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	dubbov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/dubbo_proxy/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// edsName is the name of the assignment that a cluster fetches over this stream; empty if it gets its endpoints otherwise.
func edsName(c *clusterv3.Cluster) string {
	if c.GetType() != clusterv3.Cluster_EDS {
		return ""
	}
	// A cluster that fetches its endpoints over another connection does not matter for the order of this stream.
	if src := c.GetEdsClusterConfig().GetEdsConfig(); src != nil && !overADS(src) {
		return ""
	}
	if n := c.GetEdsClusterConfig().GetServiceName(); n != "" {
		return n
	}
	return c.GetName()
}

func overADS(src *corev3.ConfigSource) bool { return src.GetAds() != nil || src.GetSelf() != nil }

// listenerRefs finds what a listener refers to in its network filters and its API listener: the route configurations that
// it fetches by RDS, and the clusters that its TCP proxies and inline routes name. Both lists are sorted.
func listenerRefs(msg proto.Message) (routes, clusters []string) {
	l, ok := msg.(*listenerv3.Listener)
	if !ok {
		return nil, nil
	}
	chains := l.GetFilterChains()
	if d := l.GetDefaultFilterChain(); d != nil {
		chains = append(slices.Clip(chains), d)
	}
	packed := []*anypb.Any{l.GetApiListener().GetApiListener()}
	for _, c := range chains {
		for _, f := range c.GetFilters() {
			packed = append(packed, f.GetTypedConfig())
		}
	}
	for _, p := range packed {
		m, err := p.UnmarshalNew()
		if err != nil {
			continue // The validation of the encoded resource reports it.
		}
		switch m := m.(type) {
		case *hcmv3.HttpConnectionManager:
			if n := m.GetRds().GetRouteConfigName(); n != "" {
				routes = append(routes, n)
			}
			clusters = append(clusters, routedTo(m.GetRouteConfig().GetVirtualHosts()...)...)
		case *dubbov3.DubboProxy:
			clusters = append(clusters, calledIn(m)...)
		case *tcpv3.TcpProxy:
			clusters = append(clusters, m.GetCluster())
			for _, w := range m.GetWeightedClusters().GetClusters() {
				clusters = append(clusters, w.GetName())
			}
		}
	}
	return distinct(routes), distinct(clusters)
}

// calledIn lists the clusters that calls of Dubbo go to.
func calledIn(m *dubbov3.DubboProxy) (clusters []string) {
	for _, c := range m.GetMultipleRouteConfig().GetRouteConfig() {
		for _, r := range c.GetRoutes() {
			clusters = append(clusters, r.GetRoute().GetCluster())
			for _, w := range r.GetRoute().GetWeightedClusters().GetClusters() {
				clusters = append(clusters, w.GetName())
			}
		}
	}
	return clusters
}

// routedTo lists the clusters that virtual hosts send and mirror requests to.
func routedTo(hosts ...*routev3.VirtualHost) (clusters []string) {
	for _, vh := range hosts {
		for _, r := range vh.GetRoutes() {
			for _, m := range r.GetRoute().GetRequestMirrorPolicies() {
				clusters = append(clusters, m.GetCluster())
			}
			clusters = append(clusters, r.GetRoute().GetCluster())
			for _, w := range r.GetRoute().GetWeightedClusters().GetClusters() {
				clusters = append(clusters, w.GetName())
			}
		}
	}
	return clusters
}

// distinct sorts names and removes duplicates and the empty name.
func distinct(names []string) []string {
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > 0 && names[0] == "" {
		names = names[1:]
	}
	return names
}
