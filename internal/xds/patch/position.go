package patch

import (
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// Envoy refuses a list of filters in which the one that ends the list is not the last. So an added filter goes before that, unless it ends
// the list itself.

// classed remembers the filters that were added with a class, because these stay in the order of the patches.
type classed[T comparable] map[T]networking.EnvoyFilter_Patch_FilterClass

// traits say what a filter does, as far as it matters to the position of others.
type traits[T any] struct{ ends, verifies, decides func(T) bool }

func networkTraits() traits[*listenerv3.Filter] {
	decides := func(f *listenerv3.Filter) bool {
		return decidesAccess(f.GetName()) || decidesAccess(string(f.GetTypedConfig().MessageName()))
	}
	return traits[*listenerv3.Filter]{
		ends:     func(f *listenerv3.Filter) bool { return endsChain(string(f.GetTypedConfig().MessageName())) },
		verifies: decides, decides: decides,
	}
}

func httpTraits() traits[*hcmv3.HttpFilter] {
	return traits[*hcmv3.HttpFilter]{
		ends: func(f *hcmv3.HttpFilter) bool {
			return f.GetTypedConfig().MessageName() == "envoy.extensions.filters.http.router.v3.Router"
		},
		verifies: func(f *hcmv3.HttpFilter) bool {
			return strings.Contains(string(f.GetTypedConfig().MessageName()), ".jwt_authn.")
		},
		decides: func(f *hcmv3.HttpFilter) bool {
			return decidesAccess(f.GetName()) || decidesAccess(string(f.GetTypedConfig().MessageName()))
		},
	}
}

// position is where a filter of a class goes: behind the filters for authentication, behind the filters that decide about access, or before the
// filter that ends the list.
func (c classed[T]) position(list []T, added T, class networking.EnvoyFilter_Patch_FilterClass, t traits[T]) int {
	behind := func(is func(T) bool) int {
		at := 0
		for i, f := range list {
			if _, ours := c[f]; !ours && is(f) {
				at = i + 1
			}
		}
		for at < len(list) && c[list[at]] == class {
			at++
		}
		return at
	}
	switch {
	case t.ends(added):
		return len(list)
	case class == networking.EnvoyFilter_Patch_AUTHN:
		return behind(t.verifies)
	case class == networking.EnvoyFilter_Patch_AUTHZ:
		return behind(t.decides)
	}
	if at := slices.IndexFunc(list, t.ends); at >= 0 {
		return at
	}
	return len(list)
}

// endsChain reports whether a filter of connections with this configuration must be the last one.
func endsChain(config string) bool {
	switch config {
	case "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
		"envoy.extensions.filters.network.redis_proxy.v3.RedisProxy", "envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy",
		"envoy.extensions.filters.network.dubbo_proxy.v3.DubboProxy", "envoy.extensions.filters.network.generic_proxy.v3.GenericProxy",
		"envoy.extensions.filters.network.echo.v3.Echo", "envoy.extensions.filters.network.direct_response.v3.Config":
		return true
	}
	return false
}
