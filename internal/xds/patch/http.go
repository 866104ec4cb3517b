package patch

import (
	"fmt"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/rules/envoy"
)

// connectionManager is the message that configures the filter with filters for requests.
const connectionManager = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

// connectionManager applies patches within the filter that has filters for requests, and perhaps routes. It does nothing to other filters.
func (r *run) connectionManager(l *listenerv3.Listener, c *listenerv3.FilterChain, f *listenerv3.Filter) {
	about := func(p *Patch) bool {
		name := p.networkFilter()
		return p.selectsListener(l) && p.selectsChain(l, c) && (name == "" || name == f.GetName())
	}
	filters := false
	for _, p := range r.of(networking.EnvoyFilter_HTTP_FILTER) {
		filters = filters || about(p)
	}
	routes := r.any(networking.EnvoyFilter_ROUTE_CONFIGURATION, networking.EnvoyFilter_VIRTUAL_HOST, networking.EnvoyFilter_HTTP_ROUTE)
	if !filters && !routes || f.GetTypedConfig().MessageName() != connectionManager {
		return
	}
	m := &hcmv3.HttpConnectionManager{}
	if err := f.GetTypedConfig().UnmarshalTo(m); err != nil {
		return // it cannot be read, so nothing in it matches
	}
	was := proto.CloneOf(m)
	if filters {
		r.httpFilters(m, about)
	}
	if routes && m.GetRouteConfig() != nil {
		r.routeConfiguration(m.GetRouteConfig())
	}
	if proto.Equal(was, m) {
		return
	}
	if packed, err := pack(m); err == nil {
		f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: packed}
	}
}

func (r *run) httpFilters(m *hcmv3.HttpConnectionManager, about func(*Patch) bool) {
	added := classed[*hcmv3.HttpFilter]{}
	for i, p := range r.of(networking.EnvoyFilter_HTTP_FILTER) {
		if merges(p.op) || !about(p) {
			continue
		}
		m.HttpFilters = placeIn(r, i, p.placedHTTP(m.GetHttpFilters(), added), m.GetHttpFilters())
	}
	for _, f := range m.GetHttpFilters() {
		for i, p := range r.of(networking.EnvoyFilter_HTTP_FILTER) {
			if merges(p.op) && about(p) && p.mergesHTTP(f) {
				r.do(i, func() error { return p.mergeHTTPFilter(f) })
			}
		}
	}
}

// placedHTTP is the operation of a patch on the filters for requests.
func (p *Patch) placedHTTP(list []*hcmv3.HttpFilter, added classed[*hcmv3.HttpFilter]) placed[*hcmv3.HttpFilter] {
	name, op := p.httpFilter(), p.op
	if inserts(op) && !slices.ContainsFunc(list, func(f *hcmv3.HttpFilter) bool { return f.GetName() == name }) {
		name, op = insteadOf(name, op, list)
	}
	of := placed[*hcmv3.HttpFilter]{
		op: op, named: name != "", firstAnyway: true, selects: func(f *hcmv3.HttpFilter) bool { return f.GetName() == name },
	}
	if value, ok := p.value.(*hcmv3.HttpFilter); ok {
		value = proto.CloneOf(value)
		of.value = func() *hcmv3.HttpFilter { return value }
		of.add = func(list []*hcmv3.HttpFilter) int { return added.position(list, value, p.class, httpTraits()) }
		if op == networking.EnvoyFilter_Patch_ADD {
			of.named, added[value] = false, p.class
		}
	}
	return of
}

// mergesHTTP reports whether a patch merges into a filter: the one that it names, or without a name each one of the type in its value.
func (p *Patch) mergesHTTP(f *hcmv3.HttpFilter) bool {
	if name := p.httpFilter(); name != "" {
		return name == f.GetName()
	}
	v, ok := p.value.(*hcmv3.HttpFilter)
	return !ok || f.GetTypedConfig() != nil && v.GetTypedConfig() != nil && typeOf(v.GetTypedConfig()) == typeOf(f.GetTypedConfig())
}

// insteadOf places a filter that a patch puts next to one that only Istio's own proxy has: where that one would be.
func insteadOf(name string, op networking.EnvoyFilter_Patch_Operation, list []*hcmv3.HttpFilter) (string, networking.EnvoyFilter_Patch_Operation) {
	if !envoy.ForeignFilter(name) {
		return name, op
	}
	switch name {
	case "istio.metadata_exchange", "envoy.filters.http.peer_metadata", "istio.peer_metadata":
		return "", networking.EnvoyFilter_Patch_INSERT_FIRST
	case "istio_authn", "jwt-auth":
		return "", networking.EnvoyFilter_Patch_ADD
	}
	for _, next := range []string{"envoy.filters.http.fault", "envoy.filters.http.cors"} {
		if name == "istio.alpn" && slices.ContainsFunc(list, func(f *hcmv3.HttpFilter) bool { return f.GetName() == next }) {
			return next, networking.EnvoyFilter_Patch_INSERT_BEFORE
		}
	}
	return "envoy.filters.http.router", networking.EnvoyFilter_Patch_INSERT_BEFORE
}

func (p *Patch) mergeHTTPFilter(f *hcmv3.HttpFilter) error {
	v, err := valueOf[*hcmv3.HttpFilter](p)
	if err != nil {
		return err
	}
	rest := proto.CloneOf(v)
	rest.Name = current(rest.GetName())
	if from := v.GetTypedConfig(); from != nil {
		if f.GetConfigDiscovery() != nil {
			return fmt.Errorf("the configuration of the filter %q is fetched by name: patch it as EXTENSION_CONFIG", f.GetName())
		}
		config, err := p.merger().config(f.GetTypedConfig(), from)
		if err != nil {
			return err
		}
		f.ConfigType, rest.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: config}, nil
	}
	p.merger().merge(f, rest)
	return nil
}
