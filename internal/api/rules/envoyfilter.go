package rules

import (
	"math"
	"regexp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/envoy"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// EnvoyFilter checks an EnvoyFilter.
func EnvoyFilter(s *networking.EnvoyFilter, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) {
		c.atMost(at.Field("targetRefs"), len(s.TargetRefs), 16)
		for i, target := range s.TargetRefs {
			c.target(at.Field("targetRefs").At(i), target)
		}
		for i, patch := range s.ConfigPatches {
			c.patch(at.Field("configPatches").At(i), patch)
		}
	})
}

func (c *checker) patch(p *document.Path, e *networking.EnvoyFilter_EnvoyConfigObjectPatch) {
	if e.GetApplyTo() == networking.EnvoyFilter_INVALID {
		c.Fail(p.Field("applyTo"), "a patch needs what it applies to, such as HTTP_FILTER or CLUSTER")
	}
	c.patchMatch(p.Field("match"), e)
	change := p.Field("patch")
	if e.GetPatch() == nil {
		return // package shape reports it
	}
	switch op := e.Patch.Operation; {
	case op == networking.EnvoyFilter_Patch_INVALID:
		c.Fail(change.Field("operation"), "a patch needs an operation, such as MERGE or INSERT_BEFORE")
	case op != networking.EnvoyFilter_Patch_REMOVE && e.Patch.Value == nil:
		c.Fail(change.Field("value"), "the operation %s needs a value", op)
	}
	if e.Patch.Value == nil || e.ApplyTo == networking.EnvoyFilter_INVALID {
		return
	}
	refused, remark := envoy.Check(e.ApplyTo.String(), e.Patch.Value)
	if refused != "" {
		c.Fail(change.Field("value"), "%s", refused)
	} else if remark != "" {
		c.Warn(change.Field("value"), "%s", remark)
	}
	for _, code := range envoy.LuaIn(e.Patch.Value) {
		c.lua(change.Field("value"), code)
	}
}

// patchMatch checks the match of a patch.
func (c *checker) patchMatch(p *document.Path, e *networking.EnvoyFilter_EnvoyConfigObjectPatch) {
	m := e.GetMatch()
	waypoint := m.GetContext() == networking.EnvoyFilter_WAYPOINT
	if (m.GetWaypoint() != nil) != waypoint {
		c.Fail(p.Field("waypoint"), "belongs to the context WAYPOINT, and that context needs it; change one of them")
	}
	if version := m.GetProxy().GetProxyVersion(); len(version) > maxProxyVersion {
		c.Warn(p.Field("proxy").Field("proxyVersion"), "has %d characters, the limit is %d: ignored", len(version), maxProxyVersion)
	} else if _, err := regexp.Compile(version); err != nil {
		c.Fail(p.Field("proxy").Field("proxyVersion"), "is %s", syntax.Refused(err))
	}
	c.selectedPorts(p, m)
	object := ""
	switch m.GetObjectTypes().(type) {
	case *networking.EnvoyFilter_EnvoyConfigObjectMatch_Listener:
		object = "listener"
		c.filterMatch(p.Field("listener").Field("filterChain").Field("filter"), e)
	case *networking.EnvoyFilter_EnvoyConfigObjectMatch_RouteConfiguration:
		object = "routeConfiguration"
	case *networking.EnvoyFilter_EnvoyConfigObjectMatch_Cluster:
		object = "cluster"
	}
	needs := map[networking.EnvoyFilter_ApplyTo]string{
		networking.EnvoyFilter_LISTENER: "listener", networking.EnvoyFilter_FILTER_CHAIN: "listener",
		networking.EnvoyFilter_NETWORK_FILTER: "listener", networking.EnvoyFilter_HTTP_FILTER: "listener",
		networking.EnvoyFilter_ROUTE_CONFIGURATION: "routeConfiguration", networking.EnvoyFilter_VIRTUAL_HOST: "routeConfiguration",
		networking.EnvoyFilter_HTTP_ROUTE: "routeConfiguration", networking.EnvoyFilter_CLUSTER: "cluster",
	}[e.GetApplyTo()]
	if object != "" && needs != "" && object != needs {
		c.Fail(p.Field(object), "applyTo %s selects by %s; use that, or change applyTo", e.ApplyTo, needs)
	}
}

// selectedPorts warns of numbers that no port has.
func (c *checker) selectedPorts(p *document.Path, m *networking.EnvoyFilter_EnvoyConfigObjectMatch) {
	for _, f := range []struct {
		at     *document.Path
		number uint32
	}{
		{p.Field("listener").Field("portNumber"), m.GetListener().GetPortNumber()},
		{p.Field("listener").Field("filterChain").Field("destinationPort"), m.GetListener().GetFilterChain().GetDestinationPort()},
		{p.Field("routeConfiguration").Field("portNumber"), m.GetRouteConfiguration().GetPortNumber()},
		{p.Field("cluster").Field("portNumber"), m.GetCluster().GetPortNumber()},
	} {
		if f.number > math.MaxUint16 {
			c.Warn(f.at, "selects nothing: a port is a number from 1 to 65535, not %d", f.number)
		}
	}
}

// maxProxyVersion is the length of the longest expression for versions that counts.
const maxProxyVersion = 1024

// connectionManager is the name of the filter that has filters for requests.
const connectionManager = "envoy.filters.network.http_connection_manager"

// filterMatch checks which filter a patch selects.
func (c *checker) filterMatch(p *document.Path, e *networking.EnvoyFilter_EnvoyConfigObjectPatch) {
	f := e.GetMatch().GetListener().GetFilterChain().GetFilter()
	if f == nil {
		return
	}
	if f.Name == "" {
		c.Fail(p.Field("name"), "a filter is selected by its name")
	}
	if e.ApplyTo == networking.EnvoyFilter_LISTENER || e.ApplyTo == networking.EnvoyFilter_FILTER_CHAIN {
		c.Warn(p, "has no effect with applyTo %s", e.ApplyTo)
	}
	c.outdatedFilter(p.Field("name"), f.Name)
	if f.SubFilter == nil {
		return
	}
	at := p.Field("subFilter")
	if e.ApplyTo != networking.EnvoyFilter_HTTP_FILTER {
		c.Fail(at, "needs applyTo HTTP_FILTER, not %s", e.ApplyTo)
	}
	if f.Name != "" && f.Name != connectionManager && f.Name != "envoy.http_connection_manager" {
		c.Fail(at, "only the filter %s has filters within", connectionManager)
	}
	if f.SubFilter.Name == "" {
		c.Fail(at.Field("name"), "a filter is selected by its name")
	}
	c.outdatedFilter(at.Field("name"), f.SubFilter.Name)
}

// outdatedFilter warns of the names that filters had before version 3 of Envoy's API.
func (c *checker) outdatedFilter(p *document.Path, name string) {
	old := strings.Fields(`envoy.buffer envoy.cors envoy.csrf envoy.ext_authz envoy.fault envoy.grpc_http1_bridge envoy.grpc_json_transcoder
envoy.grpc_web envoy.gzip envoy.health_check envoy.http_dynamo_filter envoy.ip_tagging envoy.lua envoy.rate_limit envoy.router envoy.squash
envoy.client_ssl_auth envoy.echo envoy.http_connection_manager envoy.mongo_proxy envoy.ratelimit envoy.redis_proxy envoy.tcp_proxy
envoy.listener.http_inspector envoy.listener.original_dst envoy.listener.original_src envoy.listener.proxy_protocol envoy.listener.tls_inspector`)
	if slices.Contains(old, name) {
		c.Warn(p, "%s is the name that the filter had before version 3 of Envoy's API; write envoy.filters.…", name)
	}
}
