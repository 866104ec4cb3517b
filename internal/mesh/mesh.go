// Package mesh is the vocabulary of the data model: hosts, ports, protocols, endpoints, localities.
//
// It owns values and the rules that need nothing but a value: what a host pattern covers, which names of a host are
// short forms, how a protocol is spelled. Values are immutable once they are in a row; comparing two is cheap and exact.
// The package starts no goroutines. It imports no Kubernetes, no Envoy, no protos, no api.
package mesh

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Gateway is the reserved gateway name by which rules say that they are for all sidecars.
const Gateway = "mesh"

// Loopback is where listeners are that no other address is given, and where applications are reached.
const Loopback = "127.0.0.1"

// NoTimeout is a timeout that never expires, where 0 is the proxy's default.
const NoTimeout time.Duration = -1

// Resolution says how a service's endpoints are found.
type Resolution uint8

// The resolutions of a ServiceEntry.
const (
	// Passthrough (NONE) sends a connection to the address the client dialled.
	Passthrough Resolution = iota
	// Static takes the endpoints of the configuration.
	Static
	// DNS resolves names in the proxy and uses all addresses.
	DNS
	// DNSRoundRobin resolves names in the proxy and uses one address at a time.
	DNSRoundRobin
	// DynamicDNS resolves the name each request asks for.
	DynamicDNS
)

// String is the resolution as users write it.
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

// String is the nearness as users write it; "Any" for Anywhere.
func (n Nearness) String() string {
	switch n {
	case SameZone:
		return "PreferSameZone"
	case SameNode:
		return "PreferSameNode"
	}
	return "Any"
}

// ParseNearness reads a nearness in any case; PreferClose is an older name of PreferSameZone. What is empty or not known
// is Anywhere; known reports which of the two.
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
	TargetPort uint32 // 0: the same as Number
	Name       string
	Protocol   Protocol
}

// Target is the port an endpoint listens on unless it says otherwise.
func (p Port) Target() uint32 {
	if p.TargetPort != 0 {
		return p.TargetPort
	}
	return p.Number
}

// The ports to which a sidecar's traffic is redirected. No service can be reached on them.
const (
	ProxyOutboundPort = 15001
	ProxyInboundPort  = 15006
)

// Ports that a proxy and its agent bind themselves.
const (
	firstOwnPort   = 15000
	lastOwnPort    = 15021
	statisticsPort = 15090
)

// Reserved reports whether a port is the proxy's own. Envoy refuses a second listener on those that connections are
// redirected to; no listener that is bound, which has a socket of its own, can have what the proxy or its agent binds.
func Reserved(n uint32, bound bool) bool {
	if !bound {
		return n == ProxyOutboundPort || n == ProxyInboundPort
	}
	return n >= firstOwnPort && n <= lastOwnPort || n == statisticsPort
}

// ValidPort reports whether a number can be a port.
func ValidPort(n uint32) bool { return n > 0 && n < 1<<16 }

// Service is what callers need to know of a service to reach it, apart from its endpoints.
type Service struct {
	// Name and Namespace are those of the object that declares it.
	Name, Namespace string
	Ports           []Port
	// Addresses are virtual addresses or CIDR blocks; none means that it is reached by name only.
	Addresses       []string
	Resolution      Resolution
	External        bool // outside the mesh: no mesh identity to be expected
	SubjectAltNames []string
	// Allocated are addresses by host, "" for every host, of a service that declares none; nil for those that do.
	Allocated map[string][]string
	// Near says which endpoints go before others for being near the client, where no rule says anything of that.
	Near Nearness
}

// Nearness says which endpoints count as near.
type Nearness uint8

// The kinds of nearness.
const (
	// Anywhere: all endpoints are alike.
	Anywhere Nearness = iota
	// SameZone: those of the client's network, region, zone and subzone, the more of them the better.
	SameZone
	// SameNode: those, and before all those of the client's node.
	SameNode
)

// Equal reports whether the two are the same to every reader.
func (s *Service) Equal(o *Service) bool {
	return s == o || s != nil && o != nil &&
		s.Name == o.Name && s.Namespace == o.Namespace && s.Resolution == o.Resolution && s.External == o.External && s.Near == o.Near &&
		slices.Equal(s.Ports, o.Ports) && maps.EqualFunc(s.Allocated, o.Allocated, slices.Equal) && slices.Equal(s.Addresses, o.Addresses) && slices.Equal(s.SubjectAltNames, o.SubjectAltNames)
}

// For is the service as one of its hosts: with the addresses that are allocated to that.
func (s *Service) For(host string) *Service {
	if len(s.Allocated) == 0 {
		return s
	}
	own := *s
	own.Addresses = slices.Concat(s.Allocated[""], s.Allocated[host])
	own.Allocated = nil
	return &own
}

// Port finds a port by number.
func (s *Service) Port(number uint32) (Port, bool) {
	for _, p := range s.Ports {
		if p.Number == number {
			return p, true
		}
	}
	return Port{}, false
}

// Locality is where an endpoint or a proxy runs.
type Locality struct{ Region, Zone, SubZone string }

// ParseLocality reads "region/zone/subzone"; missing parts are empty.
func ParseLocality(s string) Locality {
	var parts [3]string
	copy(parts[:], strings.SplitN(s, "/", 3))
	return Locality{parts[0], parts[1], parts[2]}
}

// Compare orders localities by region, zone and subzone.
func (l Locality) Compare(o Locality) int {
	if c := strings.Compare(l.Region, o.Region); c != 0 {
		return c
	}
	if c := strings.Compare(l.Zone, o.Zone); c != 0 {
		return c
	}
	return strings.Compare(l.SubZone, o.SubZone)
}

// String is "region/zone/subzone" without empty tails.
func (l Locality) String() string {
	return strings.TrimRight(l.Region+"/"+l.Zone+"/"+l.SubZone, "/")
}

// Fits reports whether a locality is within a pattern like "region/zone/*" or "region". Each part is a name or "*"; what is
// left out at the end is any.
func (l Locality) Fits(pattern string) bool {
	p := ParseLocality(pattern)
	fits := func(part, pattern string) bool { return pattern == "" || pattern == "*" || part == pattern }
	return (p.Region == "*" || p.Region == l.Region) && fits(l.Zone, p.Zone) && fits(l.SubZone, p.SubZone)
}

// Site is where a client runs, as far as endpoints are preferred by it.
type Site struct {
	Locality Locality
	// Labels are those of the client's labels that rules prefer endpoints by.
	Labels Labels
}

// The labels that an endpoint and a client have by where they run.
const (
	regionLabel  = "topology.kubernetes.io/region"
	zoneLabel    = "topology.kubernetes.io/zone"
	subZoneLabel = "topology.istio.io/subzone"
	networkLabel = "topology.istio.io/network"
	clusterLabel = "topology.istio.io/cluster"
	nodeLabel    = "kubernetes.io/hostname"
)

// PlaceLabel is the value of a label, also of one that says where something runs: in which locality, network or cluster. The
// locality and the cluster that it is said to be in go before its labels, its labels before the network.
func PlaceLabel(key string, labels map[string]string, at Locality, network, cluster string) string {
	said := ""
	switch key {
	case regionLabel:
		said = at.Region
	case zoneLabel:
		said = at.Zone
	case subZoneLabel:
		said = at.SubZone
	case clusterLabel:
		said = cluster
	}
	if v, ok := labels[key]; ok && said == "" {
		return v
	}
	if key == networkLabel {
		return network
	}
	return said
}

// SaysPlace reports whether a label may be said by where an endpoint runs, and not only by its labels.
func SaysPlace(key string) bool {
	switch key {
	case regionLabel, zoneLabel, subZoneLabel, networkLabel, clusterLabel:
		return true
	}
	return false
}

// NearLabels are the labels by which endpoints near a client are told from others, the most important first.
func NearLabels(n Nearness) []string {
	switch n {
	case SameZone:
		return []string{networkLabel, regionLabel, zoneLabel, subZoneLabel}
	case SameNode:
		return []string{networkLabel, regionLabel, zoneLabel, subZoneLabel, nodeLabel}
	}
	return nil
}

// RunsAt is where a workload runs: where its labels say, else where it is said to.
func RunsAt(labels map[string]string, said Locality) Locality {
	l := Locality{labels[regionLabel], labels[zoneLabel], labels[subZoneLabel]}
	if l == (Locality{}) {
		l = LabelLocality(labels)
	}
	if l == (Locality{}) {
		return said
	}
	return l
}

// Endpoint is one place that serves a service.
type Endpoint struct {
	// Address is an IP address, a DNS name, or "unix://" and a path.
	Address string
	// Ports overrides the target port by the name of the service's port.
	Ports          map[string]uint32
	Labels         map[string]string
	Locality       Locality
	Weight         uint32 // 0 counts as 1
	Network        string
	ServiceAccount string
	// Unhealthy says that its health is looked after, and that it is not known to be good.
	Unhealthy bool
}

// Equal reports whether the two are the same to every reader.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.Address == o.Address && e.Locality == o.Locality && e.Weight == o.Weight && e.Network == o.Network &&
		e.ServiceAccount == o.ServiceAccount && e.Unhealthy == o.Unhealthy && maps.Equal(e.Ports, o.Ports) && maps.Equal(e.Labels, o.Labels)
}

// localityLabel is the label by which a workload may say its locality, with dots or slashes between the parts.
const localityLabel = "istio-locality"

// LabelLocality is the locality that labels say; empty if they say none.
func LabelLocality(labels map[string]string) Locality {
	where := labels[localityLabel]
	if !strings.Contains(where, "/") {
		where = strings.ReplaceAll(where, ".", "/")
	}
	return ParseLocality(where)
}

// The label by which an endpoint says that there is a proxy beside it that takes the mesh's TLS.
const (
	tlsModeLabel = "security.istio.io/tlsMode"
	tlsModeMesh  = "istio"
)

// MeshTLS reports whether the endpoint takes the mesh's TLS: it says so, or it has an identity and does not say otherwise.
func (e Endpoint) MeshTLS() bool {
	mode, said := e.Labels[tlsModeLabel]
	return mode == tlsModeMesh || !said && e.ServiceAccount != ""
}

// Port is the port on which the endpoint serves p.
func (e Endpoint) Port(p Port) uint32 {
	if n, ok := e.Ports[p.Name]; ok {
		return n
	}
	return p.Target()
}

// Has reports whether the endpoint has every pair of labels. Where it runs is among its labels.
func (e Endpoint) Has(labels map[string]string) bool {
	for k, v := range labels {
		if got, ok := e.Labels[k]; (!ok || got != v) && (v == "" || PlaceLabel(k, e.Labels, e.Locality, e.Network, "") != v) {
			return false
		}
	}
	return true
}

// UnixPath is the path of a Unix domain socket endpoint.
func (e Endpoint) UnixPath() (path string, ok bool) { return strings.CutPrefix(e.Address, "unix://") }

// Selects reports whether labels has every label of selector.
func Selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
