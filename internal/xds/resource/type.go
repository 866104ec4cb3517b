package resource

import (
	"strings"

	"github.com/pilotmesh/pilot/internal/xds/nds"
)

// Type is one of the resource types that the server serves. Class states contain the first six. Four of them are for Envoy, in the
// order of sending: a resource refers only to resources of earlier types, or of the next type, which the client then fetches. The others
// are for agents, and refer to nothing.
type Type uint8

// The types, in send order.
const (
	Cluster Type = iota
	Endpoint
	Listener
	Route
	// NameTable has the names that agents answer. Each resource is a table of one name; see Whole.
	NameTable
	// Bootstrap is what patches of users add to the bootstrap of Envoy: one resource, or none. The agent merges it into the bootstrap.
	Bootstrap
	// Types is the number of types that class states contain.
	Types = 6
)

// The types that are answered per proxy. A client asks for each resource by name, and no class state, no shared message and
// no dump contains one.
const (
	Extension Type = Types + iota
	Secret
	// allTypes is the number of all types that clients ask for on their own.
	allTypes = Types + 2
)

// VirtualHost is the type of the virtual hosts of a split route configuration (VHDS). No class state contains it: the virtual hosts are the
// pieces of the resources of type Route, and a client that has a split route configuration is sent its virtual hosts without asking.
const VirtualHost Type = allTypes

// Configuration is the type of the objects of configuration that other control planes read. No proxy is sent one. Clients ask for the kinds of
// objects, and not for this type.
const Configuration Type = VirtualHost + 1

// PerProxy reports whether the type is answered per proxy. Such resources are in no class state.
func (t Type) PerProxy() bool { return t >= Types && t < allTypes }

const urlPrefix = "type.googleapis.com/"

type typeInfo struct {
	url, short, kind string

	wildcard bool
}

// infoOf is a function and not a table, because a package must have no mutable variables.
func infoOf(t Type) typeInfo {
	switch t {
	case Cluster:
		return typeInfo{urlPrefix + "envoy.config.cluster.v3.Cluster", "CDS", "cluster", true}
	case Endpoint:
		return typeInfo{urlPrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment", "EDS", "endpoint", false}
	case Listener:
		return typeInfo{urlPrefix + "envoy.config.listener.v3.Listener", "LDS", "listener", true}
	case Route:
		return typeInfo{urlPrefix + "envoy.config.route.v3.RouteConfiguration", "RDS", "route", false}
	case NameTable:
		return typeInfo{nds.URL, "NDS", "name", true}
	case Bootstrap:
		return typeInfo{urlPrefix + "envoy.config.bootstrap.v3.Bootstrap", "BDS", "bootstrap", true}
	case Extension:
		return typeInfo{urlPrefix + "envoy.config.core.v3.TypedExtensionConfig", "ECDS", "extension", false}
	case Secret:
		return typeInfo{urlPrefix + "envoy.extensions.transport_sockets.tls.v3.Secret", "SDS", "secret", false}
	case VirtualHost:
		return typeInfo{urlPrefix + "envoy.config.route.v3.VirtualHost", "VHDS", "virtual host", false}
	case Configuration:
		return typeInfo{urlPrefix + "istio.mcp.v1alpha1.Resource", "MCP", "object", true}
	}
	return typeInfo{}
}

// URL is the type URL on the wire.
func (t Type) URL() string { return infoOf(t).url }

// String is the usual short name: CDS, EDS, LDS, RDS, NDS, BDS, ECDS, SDS, VHDS.
func (t Type) String() string { return infoOf(t).short }

// Kind is the word for one resource of the type: cluster, endpoint, listener, route, name, bootstrap, extension, secret, virtual host.
func (t Type) Kind() string { return infoOf(t).kind }

// Wildcard reports whether a client may subscribe to all resources of the type. A State-of-the-World response for such a
// type must contain all of them; for the other types it may contain some.
func (t Type) Wildcard() bool { return infoOf(t).wildcard }

// ParseType finds the type of a type URL.
func ParseType(url string) (Type, bool) {
	for t := Type(0); t <= VirtualHost; t++ {
		if t.URL() == url {
			return t, true
		}
	}
	return 0, false
}

// ParseKind finds a type of class states by any of its names: cluster, clusters, cds, or its URL.
func ParseKind(word string) (Type, bool) {
	for t := Type(0); t < Types; t++ {
		if strings.EqualFold(word, t.String()) || strings.EqualFold(strings.TrimSuffix(word, "s"), t.Kind()) || word == t.URL() {
			return t, true
		}
	}
	return 0, false
}
