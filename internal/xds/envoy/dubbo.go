package envoy

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/dubbo_proxy/router/v3"
	dubbov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/dubbo_proxy/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// DubboRoute sends the calls of an interface of Dubbo to clusters, by the first rule that matches. Group and version of a call must be equal.
type DubboRoute struct {
	Interface, Group, Version string
	Rules                     []DubboRule
}

// DubboRule sends calls to clusters.
type DubboRule struct {
	// Method matches the name of the method. It is nil for all methods.
	Method      *matcherv3.StringMatcher
	Attachments []*routev3.HeaderMatcher
	Clusters    []Weighted
}

// DubboProxy forwards calls of Dubbo by their interface. A call without a route fails, and the connection stays.
func DubboProxy(stat string, routes []DubboRoute) *listenerv3.Filter {
	all := &dubbov3.MultipleRouteConfiguration{Name: stat}
	for _, r := range routes {
		config := &dubbov3.RouteConfiguration{Name: r.Interface, Interface: r.Interface, Group: r.Group, Version: r.Version}
		for _, rule := range r.Rules {
			config.Routes = append(config.Routes, rule.route())
		}
		all.RouteConfig = append(all.RouteConfig, config)
	}
	return NetworkFilter("envoy.filters.network.dubbo_proxy", &dubbov3.DubboProxy{
		StatPrefix: stat, ProtocolType: dubbov3.ProtocolType_Dubbo, SerializationType: dubbov3.SerializationType_Hessian2,
		RouteSpecifier: &dubbov3.DubboProxy_MultipleRouteConfig{MultipleRouteConfig: all},
		DubboFilters:   []*dubbov3.DubboFilter{{Name: "envoy.filters.dubbo.router", Config: Pack(&routerv3.Router{})}},
	})
}

// route is the rule in the form of Envoy, which needs a matcher of the method.
func (r DubboRule) route() *dubbov3.Route {
	method := r.Method
	if method == nil {
		method = &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: ".*"}}}
	}
	return &dubbov3.Route{
		Match: &dubbov3.RouteMatch{Method: &dubbov3.MethodMatch{Name: method}, Headers: r.Attachments},
		Route: dubboAction(r.Clusters),
	}
}

func dubboAction(list []Weighted) *dubbov3.RouteAction {
	if len(list) == 1 {
		return &dubbov3.RouteAction{ClusterSpecifier: &dubbov3.RouteAction_Cluster{Cluster: list[0].Cluster}}
	}
	split := &routev3.WeightedCluster{}
	for _, w := range list {
		split.Clusters = append(split.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: w.Cluster, Weight: wrapperspb.UInt32(w.Weight)})
	}
	return &dubbov3.RouteAction{ClusterSpecifier: &dubbov3.RouteAction_WeightedClusters{WeightedClusters: split}}
}
