package envoy

import (
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	demandv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/on_demand/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	sessionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
)

// Names of HTTP filters. A route configures a filter of the connection manager under the same name.
const (
	FaultFilter  = "envoy.filters.http.fault"
	CORSFilter   = "envoy.filters.http.cors"
	webFilter    = "envoy.filters.http.grpc_web"
	routerFilter = "envoy.filters.http.router"
)

// httpFilters are the filters of every connection manager. Those before the router do nothing unless a route configures
// them.
func httpFilters(o HTTPOptions) []*hcmv3.HttpFilter {
	var filters []*hcmv3.HttpFilter
	if o.HostsOnDemand {
		filters = append(filters, demandFilter())
	}
	filters = append(filters, o.First...)
	if o.GRPCWeb {
		filters = append(filters, HTTPFilter(webFilter, &grpcwebv3.GrpcWeb{}))
	}
	filters = append(filters, HTTPFilter(FaultFilter, &faultv3.HTTPFault{}), HTTPFilter(CORSFilter, &corsv3.Cors{}))
	if o.Sessions {
		filters = append(filters, HTTPFilter(SessionFilter, &sessionv3.StatefulSession{}))
	}
	if o.DynamicClusters {
		filters = append(filters, dynamicHTTPFilter(o.Families))
	}
	return append(filters, HTTPFilter(routerFilter, &routerv3.Router{SuppressEnvoyHeaders: o.SuppressEnvoyHeaders}))
}

// HTTPFilter is a filter of a connection manager.
func HTTPFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: Pack(config)}}
}

// DemandCluster is a cluster without endpoints that sidecars with hosts on demand have, and no others. A sidecar that connects again lists its clusters
// first, which says which form of listeners and route configurations it has.
const DemandCluster = "hosts-on-demand"

// demandFilter lets a request for a host that the route configuration does not have wait until Envoy has asked for its virtual host.
func demandFilter() *hcmv3.HttpFilter {
	return HTTPFilter("envoy.filters.http.on_demand", &demandv3.OnDemand{})
}
