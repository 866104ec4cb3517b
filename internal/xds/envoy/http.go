package envoy

import (
	"slices"

	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
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
	filters := slices.Clone(o.First)
	if o.GRPCWeb {
		filters = append(filters, HTTPFilter(webFilter, &grpcwebv3.GrpcWeb{}))
	}
	filters = append(filters, HTTPFilter(FaultFilter, &faultv3.HTTPFault{}), HTTPFilter(CORSFilter, &corsv3.Cors{}))
	if o.DynamicClusters {
		filters = append(filters, dynamicHTTPFilter(o.IPv6))
	}
	return append(filters, HTTPFilter(routerFilter, &routerv3.Router{SuppressEnvoyHeaders: o.SuppressEnvoyHeaders}))
}

// HTTPFilter is a filter of a connection manager.
func HTTPFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: Pack(config)}}
}
