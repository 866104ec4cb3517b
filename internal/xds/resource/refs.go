package resource

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// edsName is the assignment a cluster asks for, "" if it gets its endpoints otherwise.
func edsName(c *clusterv3.Cluster) string {
	if c.GetType() != clusterv3.Cluster_EDS {
		return ""
	}
	// A cluster that fetches over its own connection is nothing this stream has to order.
	if src := c.GetEdsClusterConfig().GetEdsConfig(); src != nil && !overADS(src) {
		return ""
	}
	if n := c.GetEdsClusterConfig().GetServiceName(); n != "" {
		return n
	}
	return c.GetName()
}

func overADS(src *corev3.ConfigSource) bool { return src.GetAds() != nil || src.GetSelf() != nil }

// routeNames finds the route configurations a listener fetches by RDS, in network filters and in an API listener.
func routeNames(msg proto.Message) []string {
	l, ok := msg.(*listenerv3.Listener)
	if !ok {
		return nil
	}
	var names []string
	add := func(packed *anypb.Any) {
		if !packed.MessageIs((*hcmv3.HttpConnectionManager)(nil)) {
			return
		}
		var hcm hcmv3.HttpConnectionManager
		if err := packed.UnmarshalTo(&hcm); err != nil {
			return // validation of the final bytes speaks about it
		}
		if n := hcm.GetRds().GetRouteConfigName(); n != "" {
			names = append(names, n)
		}
	}
	chains := l.GetFilterChains()
	if d := l.GetDefaultFilterChain(); d != nil {
		chains = append(slices.Clip(chains), d)
	}
	for _, c := range chains {
		for _, f := range c.GetFilters() {
			add(f.GetTypedConfig())
		}
	}
	add(l.GetApiListener().GetApiListener())
	slices.Sort(names)
	return slices.Compact(names)
}
