package client

// Type is one of the four resource types a sidecar asks for.
type Type uint8

// The types, in the order in which a change travels safely.
const (
	CDS Type = iota
	EDS
	LDS
	RDS
	Types = 4
)

// All lists the types in order.
func All() [Types]Type { return [Types]Type{CDS, EDS, LDS, RDS} }

// URL is the type as it stands on the wire.
func (t Type) URL() string {
	return "type.googleapis.com/" + [Types]string{
		"envoy.config.cluster.v3.Cluster", "envoy.config.endpoint.v3.ClusterLoadAssignment",
		"envoy.config.listener.v3.Listener", "envoy.config.route.v3.RouteConfiguration",
	}[t]
}

// String is the short name.
func (t Type) String() string { return [Types]string{"CDS", "EDS", "LDS", "RDS"}[t] }

// Wildcard reports whether the type has one: a client may ask for everything.
func (t Type) Wildcard() bool { return t == CDS || t == LDS }

// ParseType finds the type with a URL.
func ParseType(url string) (Type, bool) {
	for _, t := range All() {
		if t.URL() == url {
			return t, true
		}
	}
	return 0, false
}

// Variant is one of the two forms of the protocol.
type Variant uint8

// The variants.
const (
	Delta Variant = iota
	SotW
)

// String is the variant as written in the names of tests.
func (v Variant) String() string { return [...]string{"delta", "sotw"}[v] }

// Method is the gRPC method that serves the variant.
func (v Variant) Method() string {
	return "/envoy.service.discovery.v3.AggregatedDiscoveryService/" + [...]string{"DeltaAggregatedResources", "StreamAggregatedResources"}[v]
}

// Star is the wildcard name.
const Star = "*"
