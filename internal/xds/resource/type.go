package resource

import "strings"

// Type is one of the resource types served here. Those that class states hold are in the order in which they are sent: a resource
// names only resources of earlier types, or of the next one that is fetched because of it.
type Type uint8

// The types, in send order.
const (
	Cluster Type = iota
	Endpoint
	Listener
	Route
	// Types is the number of types that class states hold.
	Types = 4
)

// The types that are answered proxy by proxy: a client asks for each resource by its name, and no class state, no shared message
// and no dump holds one.
const (
	Extension Type = Types + iota
	Secret
	// AllTypes is the number of types of both sorts.
	AllTypes = Types + 2
)

// Personal reports whether the type is answered proxy by proxy.
func (t Type) Personal() bool { return t >= Types }

const urlPrefix = "type.googleapis.com/"

type typeInfo struct {
	url, short, kind string

	wildcard bool
}

// infoOf is a function and not a table because packages hold no mutable state.
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
	case Extension:
		return typeInfo{urlPrefix + "envoy.config.core.v3.TypedExtensionConfig", "ECDS", "extension", false}
	case Secret:
		return typeInfo{urlPrefix + "envoy.extensions.transport_sockets.tls.v3.Secret", "SDS", "secret", false}
	}
	return typeInfo{}
}

// URL is the type URL on the wire.
func (t Type) URL() string { return infoOf(t).url }

// String is the short name people use: CDS, EDS, LDS, RDS, ECDS, SDS.
func (t Type) String() string { return infoOf(t).short }

// Kind is what people call one resource of the type: cluster, endpoint, listener, route, extension, secret.
func (t Type) Kind() string { return infoOf(t).kind }

// Wildcard reports whether a client may ask for all resources of the type. A State-of-the-World response for such a
// type holds the whole list; for the others it may hold a part.
func (t Type) Wildcard() bool { return infoOf(t).wildcard }

// ParseType finds the type of a type URL.
func ParseType(url string) (Type, bool) {
	for t := Type(0); t < AllTypes; t++ {
		if t.URL() == url {
			return t, true
		}
	}
	return 0, false
}

// ParseKind finds a type that class states hold by any of its names: cluster, clusters, cds, or its URL.
func ParseKind(word string) (Type, bool) {
	for t := Type(0); t < Types; t++ {
		if strings.EqualFold(word, t.String()) || strings.EqualFold(strings.TrimSuffix(word, "s"), t.Kind()) || word == t.URL() {
			return t, true
		}
	}
	return 0, false
}
