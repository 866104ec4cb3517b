// Package mesh is the vocabulary of the data model: hosts, ports, protocols, endpoints, localities.
//
// It owns values, and the rules that depend on values only: which hosts a pattern covers, which short names a host has, which
// ports are reserved for the proxy, how names of protocols are parsed. Values in rows are immutable, and their comparison is
// exact and cheap. The package starts no goroutines. It exports more than 60 names, because every package speaks of hosts, ports
// and endpoints in these terms.
package mesh

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Gateway is the reserved gateway name that applies a rule to all sidecars.
const Gateway = "mesh"

// Loopback is the default address of listeners, and the address of applications.
const Loopback = "127.0.0.1"

// NoTimeout is a timeout that never expires, where 0 is the proxy's default.
const NoTimeout time.Duration = -1

// Resolution is how proxies find the endpoints of a service.
type Resolution uint8

// The resolutions of a ServiceEntry.
const (
	// Passthrough (NONE) forwards connections to their original destination.
	Passthrough Resolution = iota
	// Static uses the endpoints of the configuration.
	Static
	// DNS resolves the names of endpoints in the proxy, and uses all their addresses.
	DNS
	// DNSRoundRobin resolves the names of endpoints in the proxy, and uses one address at a time.
	DNSRoundRobin
	// DynamicDNS resolves the host of each request in the proxy.
	DynamicDNS
)

// String returns the resolution as users write it.
func (r Resolution) String() string {
	switch r {
	case Passthrough:
		return "NONE"
	case Static:
		return "STATIC"
	case DNS:
		return "DNS"
	case DNSRoundRobin:
		return "DNS_ROUND_ROBIN"
	case DynamicDNS:
		return "DYNAMIC_DNS"
	}
	return "unknown"
}

// String returns the nearness as users write it; "Any" for Anywhere.
func (n Nearness) String() string {
	switch n {
	case SameZone:
		return "PreferSameZone"
	case SameNode:
		return "PreferSameNode"
	case OnlyNode:
		return "Local"
	}
	return "Any"
}

// ParseNearness parses a nearness that users may write, in upper or lower case. "PreferClose" is the older name of SameZone. For any
// other text it returns Anywhere, and known is false unless the text is "Any".
func ParseNearness(s string) (n Nearness, known bool) {
	if strings.EqualFold(s, "PreferClose") {
		return SameZone, true
	}
	for _, n := range []Nearness{Anywhere, SameZone, SameNode} {
		if strings.EqualFold(s, n.String()) {
			return n, true
		}
	}
	return Anywhere, false
}

// Port is a port of a service.
type Port struct {
	Number     uint32
	TargetPort uint32 // 0 means Number
	// TargetName is the name of the port of a workload to which the port leads. If it is not empty, it counts and TargetPort does not.
	TargetName string
	Name       string
	Protocol   Protocol
}

// Target returns the port of endpoints that do not have their own.
func (p Port) Target() uint32 {
	if p.TargetPort != 0 {
		return p.TargetPort
	}
	return p.Number
}

// The ports of a sidecar to which traffic is redirected, unless the mesh configuration has others. Services with these ports cannot be reached.
const (
	proxyOutboundPort = 15001
	proxyInboundPort  = 15006
)

// CapturePorts are the ports of sidecars to which traffic is redirected.
type CapturePorts struct{ Outbound, Inbound uint32 }

// DefaultCapturePorts returns the ports if the mesh configuration has no others.
func DefaultCapturePorts() CapturePorts { return CapturePorts{proxyOutboundPort, proxyInboundPort} }

// Reserved is like the function of this name, for a mesh with these ports.
func (c CapturePorts) Reserved(n uint32, bound bool) bool {
	return n == c.Outbound || n == c.Inbound || bound && Reserved(n, true)
}

// The ports that a proxy and its agent bind.
const (
	firstOwnPort   = 15000
	lastOwnPort    = 15021
	statisticsPort = 15090
)

// Reserved reports whether a port is reserved for the proxy, so that no other listener may use it. For listeners without a socket
// (bound is false) these are the ports to which traffic is redirected. Listeners with a socket may not use any port that the
// proxy or its agent binds.
func Reserved(n uint32, bound bool) bool {
	if !bound {
		return n == proxyOutboundPort || n == proxyInboundPort
	}
	return n >= firstOwnPort && n <= lastOwnPort || n == statisticsPort
}

// OwnPort reports whether a sidecar or its agent listens at a port of its pod, so that the application cannot. It is Envoy's admin
// interface, the listeners for redirected traffic, tunnels, probes and scrapes, or the agent's debug, status or DNS server.
func OwnPort(n uint32) bool {
	switch n {
	case 15000, proxyOutboundPort, 15004, proxyInboundPort, 15008, 15020, 15021, 15053, statisticsPort:
		return true
	}
	return false
}

// GatewayPort reports whether gateways can listen at a port: neither their Envoy nor the agent has it. Unlike sidecars they redirect no
// traffic, so ports such as 15012 and 15017, at which they lead to control planes, are free.
func GatewayPort(n uint32) bool {
	switch n {
	case 15000, 15004, 15020, 15021, 15053, statisticsPort:
		return false
	}
	return true
}

// ValidPort reports whether a number is from 1 to 65535.
func ValidPort(n uint32) bool { return n > 0 && n < 1<<16 }

// Service describes a service to its callers, without its endpoints.
type Service struct {
	// Name and Namespace identify the object that declares the service.
	Name, Namespace string
	Ports           []Port
	// Addresses are virtual addresses or CIDR blocks. Without any, callers reach the service by name only.
	Addresses       []string
	Resolution      Resolution
	External        bool // outside the mesh, so its endpoints have no mesh identity
	SubjectAltNames []string
	// Allocated are the allocated addresses by host; those under "" are for all hosts. It is nil if the service has Addresses.
	Allocated map[string][]string
	// Near selects the endpoints that are preferred because they are near the client, unless a rule decides that.
	Near Nearness
	// Headless is true if clients resolve the name of the service to the addresses of its endpoints.
	Headless bool
	// ByFamily is true if Addresses are the addresses of one service in several IP versions. A client uses the addresses of its own versions. It is
	// true for Services of Kubernetes clusters, and for all services in a dual-stack mesh.
	ByFamily bool
	// ClusterLocal is true if clients use only the endpoints in their own cluster, of a service that several clusters have.
	ClusterLocal bool
	// SamePorts is true if gateways behind the service listen at the ports of their servers, and not at the target ports of the service.
	SamePorts bool
	// Session says whether requests of a session reach the same endpoint.
	Session Session
	// Dubbo is the interface that the ports with the protocol Dubbo serve; nil if there is no such port.
	Dubbo *DubboInterface
}

// DubboInterface is an interface of Dubbo. Another group or version of it is another service.
type DubboInterface struct{ Interface, Group, Version string }

// Nearness decides which endpoints count as near the client.
type Nearness uint8

// The kinds of nearness.
const (
	// Anywhere: no endpoint is preferred.
	Anywhere Nearness = iota
	// SameZone prefers endpoints that share network, region and zone with the client. The more levels they share, the higher their
	// priority is.
	SameZone
	// SameNode prefers endpoints that share network, region, zone, subzone and node with the client, in the same way.
	SameNode
	// OnlyNode uses endpoints on the node of the client only (internalTrafficPolicy: Local).
	OnlyNode
)

// Equal reports whether all fields are equal.
func (s *Service) Equal(o *Service) bool {
	return s == o || s != nil && o != nil &&
		s.Name == o.Name && s.Namespace == o.Namespace && s.Resolution == o.Resolution && s.External == o.External && s.Near == o.Near &&
		(s.Dubbo == o.Dubbo || s.Dubbo != nil && o.Dubbo != nil && *s.Dubbo == *o.Dubbo) &&
		s.Headless == o.Headless && s.ByFamily == o.ByFamily && s.Session == o.Session && s.ClusterLocal == o.ClusterLocal && s.SamePorts == o.SamePorts &&
		slices.Equal(s.Ports, o.Ports) && maps.EqualFunc(s.Allocated, o.Allocated, slices.Equal) && slices.Equal(s.Addresses, o.Addresses) && slices.Equal(s.SubjectAltNames, o.SubjectAltNames)
}

// For returns the service for one of its hosts, with the addresses that are allocated to this host.
func (s *Service) For(host string) *Service {
	if len(s.Allocated) == 0 {
		return s
	}
	own := *s
	own.Addresses = slices.Concat(s.Allocated[""], s.Allocated[host])
	own.Allocated = nil
	return &own
}

// Port returns the port with a number. A Service may have one port for connections and one UDP port with the same number: then it is the port
// for connections.
func (s *Service) Port(number uint32) (p Port, ok bool) {
	for _, o := range s.Ports {
		if o.Number == number && (!ok || p.Protocol == UDP) {
			p, ok = o, true
		}
	}
	return p, ok
}

// PortFor returns the port of the service to which a port of another registry with the same host is attached: the one with its number, else the only one
// with its protocol, else the only one. ok is false if there is none.
func (s *Service) PortFor(p Port) (to Port, ok bool) {
	if to, ok := s.Port(p.Number); ok {
		return to, true
	}
	same := slices.DeleteFunc(slices.Clone(s.Ports), func(o Port) bool { return o.Protocol != p.Protocol })
	switch {
	case len(same) == 1:
		return same[0], true
	case len(s.Ports) == 1:
		return s.Ports[0], true
	}
	return Port{}, false
}

// Joinable reports whether registries can add endpoints to the service: it has a list of endpoints.
func (s *Service) Joinable() bool { return s.Resolution == Static }

// Site is the part of the place and labels of a client that the choice of endpoints depends on.
type Site struct {
	Locality Locality
	// Labels are the labels of the client that occur in failover priorities.
	Labels Labels
}

// The labels for the place where an endpoint or a client runs.
const (
	// GatewayNameLabel is the label with the name of the Gateway of the Gateway API whose proxy a workload is.
	GatewayNameLabel = "gateway.networking.k8s.io/gateway-name"
	// SamePortsLabel is on a service behind which gateways listen at the ports of their servers, and not at its target ports.
	SamePortsLabel = "experimental.istio.io/disable-gateway-port-translation"
	// NetworkLabel is the label with the network of an endpoint or a client.
	NetworkLabel = "topology.istio.io/network"

	regionLabel  = "topology.kubernetes.io/region"
	zoneLabel    = "topology.kubernetes.io/zone"
	subZoneLabel = "topology.istio.io/subzone"
	clusterLabel = "topology.istio.io/cluster"
	nodeLabel    = "kubernetes.io/hostname"

	oldRegionLabel = "failure-domain.beta.kubernetes.io/region"
	oldZoneLabel   = "failure-domain.beta.kubernetes.io/zone"
)

// NodeOf returns the node of a site; empty if it is not known, or nothing depends on it.
func NodeOf(at Site) string {
	node, _ := LabelValue(at.Labels, nodeLabel)
	return node
}

// Place is where an endpoint or a client runs. Unknown parts are empty.
type Place struct {
	Locality
	// Network, Cluster and Node are names.
	Network, Cluster, Node string
}

// PlaceLabel returns the value of a label of a workload. A label of its place takes its value from the locality, cluster and node,
// if these are known, then from the labels, then from the network.
func PlaceLabel(key string, labels Labels, at Place) string {
	value := ""
	switch key {
	case regionLabel:
		value = at.Region
	case zoneLabel:
		value = at.Zone
	case subZoneLabel:
		value = at.SubZone
	case clusterLabel:
		value = at.Cluster
	case nodeLabel:
		value = at.Node
	}
	if v, ok := LabelValue(labels, key); ok && value == "" {
		return v
	}
	if key == NetworkLabel {
		return at.Network
	}
	return value
}

// IsPlaceLabel reports whether a label names a part of the place of an endpoint, so that an endpoint may match it without a label of this name.
func IsPlaceLabel(key string) bool {
	switch key {
	case regionLabel, zoneLabel, subZoneLabel, NetworkLabel, clusterLabel, nodeLabel:
		return true
	}
	return false
}

// NearLabels returns the labels whose values near endpoints share with the client, the most important one first.
func NearLabels(n Nearness) []string {
	switch n {
	case SameZone:
		return []string{NetworkLabel, regionLabel, zoneLabel}
	case SameNode:
		return []string{NetworkLabel, regionLabel, zoneLabel, subZoneLabel, nodeLabel}
	case OnlyNode:
		return []string{nodeLabel}
	}
	return nil
}

// WorkloadLocality returns the locality in the labels of a workload, or the declared one if the labels have none.
func WorkloadLocality(labels Labels, declared Locality) Locality {
	l := topologyLocality(labels)
	if l == (Locality{}) {
		l = LabelledLocality(labels)
	}
	if l == (Locality{}) {
		return declared
	}
	return l
}

// NodeLocality returns the locality in the topology labels of a node. Labels of the names that Kubernetes gave them first count where
// the others are missing.
func NodeLocality(labels Labels) Locality {
	at := topologyLocality(labels)
	if at.Region == "" {
		at.Region, _ = LabelValue(labels, oldRegionLabel)
	}
	if at.Zone == "" {
		at.Zone, _ = LabelValue(labels, oldZoneLabel)
	}
	return at
}

func topologyLocality(labels Labels) (at Locality) {
	at.Region, _ = LabelValue(labels, regionLabel)
	at.Zone, _ = LabelValue(labels, zoneLabel)
	at.SubZone, _ = LabelValue(labels, subZoneLabel)
	return at
}

// LabelledLocality returns the locality in the label topology.istio.io/locality of a workload, or else in the older label istio-locality.
// Parts at the end may be missing.
func LabelledLocality(labels Labels) Locality {
	for _, label := range []string{localityLabel, oldLocalityLabel} {
		if value, _ := LabelValue(labels, label); value != "" {
			return parseLabel(value)
		}
	}
	return Locality{}
}

// Endpoint is one address that serves a service.
type Endpoint struct {
	// Address is an IP address, a DNS name, or "unix://" and a path.
	Address string
	// Second is its address in the other version of IP; empty if it has none, or if the mesh is not dual-stack.
	Second string
	// Ports are the ports of the endpoint by the name of the service port. Other ports are Port.Target.
	Ports map[string]uint32
	// OnlyPorts is true if the endpoint serves no other ports.
	OnlyPorts bool
	Labels    Labels
	Place
	Weight uint32 // 0 counts as 1
	// ServiceAccount is the name of its account, behind the namespace of the account and a slash if that is not the namespace of the
	// service.
	ServiceAccount string
	// MeshTLS is true if a proxy of the endpoint accepts mesh TLS.
	MeshTLS bool
	Health  Health
	// Workload is the name of the workload that the pod belongs to, such as a Deployment; empty if the endpoint is no pod.
	Workload string
}

// Identity returns how metrics and traces name the workload of the endpoint.
func (e Endpoint) Identity() WorkloadIdentity { return IdentityOf(e.Labels, e.Workload) }

// Equal reports whether all fields are equal.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.Address == o.Address && e.Second == o.Second && e.Place == o.Place && e.Weight == o.Weight &&
		e.ServiceAccount == o.ServiceAccount && e.MeshTLS == o.MeshTLS && e.Health == o.Health && e.OnlyPorts == o.OnlyPorts && e.Labels == o.Labels && e.Workload == o.Workload &&
		len(e.Ports) == len(o.Ports) && (len(e.Ports) == 0 || maps.Equal(e.Ports, o.Ports))
}

// localityLabel and oldLocalityLabel are labels with the locality of a workload. Dots or slashes separate its parts.
const (
	localityLabel    = "topology.istio.io/locality"
	oldLocalityLabel = "istio-locality"
)

// parseLabel returns the locality that a value of such a label says: REGION/ZONE/SUBZONE. Dots separate the parts if there is no
// slash.
func parseLabel(value string) Locality {
	if !strings.Contains(value, "/") {
		value = strings.ReplaceAll(value, ".", "/")
	}
	return ParseLocality(value)
}

// TLSModeLabel is the workload label for mesh TLS: the proxy of the workload accepts mesh TLS if the value is TLSModeMesh.
const (
	TLSModeLabel = "security.istio.io/tlsMode"
	TLSModeMesh  = "istio"
)

// Port returns the port of the endpoint for a port of the service; 0 if the endpoint does not serve it.
func (e Endpoint) Port(p Port) uint32 {
	name := p.Name
	if p.TargetName != "" && !e.OnlyPorts {
		name = p.TargetName
	}
	if n, ok := e.Ports[name]; ok {
		return n
	}
	if e.OnlyPorts || p.TargetName != "" {
		return 0
	}
	return p.Target()
}

// Has reports whether the endpoint has all of some labels. Its place counts as labels too.
func (e Endpoint) Has(labels map[string]string) bool {
	for k, v := range labels {
		if got, ok := LabelValue(e.Labels, k); (!ok || got != v) && (v == "" || PlaceLabel(k, e.Labels, e.Place) != v) {
			return false
		}
	}
	return true
}

// AccountIn returns the namespace and the name of a service account of an endpoint, as in Endpoint.ServiceAccount, of a service in a
// namespace.
func AccountIn(namespace, account string) (of, name string) {
	if of, name, other := strings.Cut(account, "/"); other {
		return of, name
	}
	return namespace, account
}

// UnixPath returns the path of a Unix domain socket; false if the endpoint has another address.
func (e Endpoint) UnixPath() (path string, ok bool) { return strings.CutPrefix(e.Address, "unix://") }

// IsPartialWildcard reports whether a host has a wildcard for a part of a label, such as *-a.example.com.
func IsPartialWildcard(host string) bool {
	rest, wild := strings.CutPrefix(host, "*")
	return wild && rest != "" && rest[0] != '.'
}
