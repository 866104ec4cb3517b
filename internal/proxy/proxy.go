// Package proxy parses the nodes of proxies into rows, and defines the classes of proxies.
//
// It owns the parsing of node ids and metadata, and Class: the facets that decide which configuration a proxy receives.
// Invariants: a Proxy and a Class are immutable. A Class contains nothing that is unique to a proxy, such as its name
// or all its labels, so replicas have the same class. Only proxies that must listen at the addresses of their
// workloads, or that must not where others do, have these addresses in their class. Invalid input results in an error
// that names the field, and never in a panic. The package starts no goroutines.
package proxy

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/connection"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// Mode is how traffic reaches a sidecar.
type Mode uint8

// The interception modes.
const (
	// Redirect: packet filter rules redirect connections to the inbound and outbound ports of the proxy.
	Redirect Mode = iota
	// Transparent: as Redirect, and connections keep the source address of the client.
	Transparent
	// None: connections are not redirected, so the proxy binds every port itself.
	None
)

// String returns the mode as it is written in node metadata.
func (m Mode) String() string {
	switch m {
	case Redirect:
		return "REDIRECT"
	case Transparent:
		return "TPROXY"
	case None:
		return "NONE"
	}
	return "unknown"
}

// Role is the job of a proxy.
type Role string

// The roles.
const (
	// Sidecar is the proxy of one workload.
	Sidecar Role = "sidecar"
	// Router is a gateway. It serves no application, and listens at the ports of its Gateways and Ingresses.
	Router Role = "router"
	// Agent is the agent of a proxy, with its own stream. It reports problems that its proxy cannot report. It has a
	// class, the class of its proxy, only if it answers DNS or asks for patches of the bootstrap.
	Agent Role = "agent"
)

// NameOf returns the name.namespace in a node id, or the text itself if it is not a node id.
func NameOf(id string) string {
	if parts := strings.Split(id, "~"); len(parts) == 4 {
		return parts[2]
	}
	return id
}

// AgentOf returns the node id of the agent of a proxy: it differs from the proxy's in the role.
func AgentOf(id string) string {
	_, rest, _ := strings.Cut(id, "~")
	return string(Agent) + "~" + rest
}

// IsAgent reports whether a node id belongs to an agent, and not to a proxy.
func IsAgent(id string) bool { return strings.HasPrefix(id, string(Agent)+"~") }

// Proxy is a connected proxy, with everything that translation may read.
type Proxy struct {
	ID        string // the node id: role~ip~name.namespace~domain
	Role      Role
	Addresses []string // of the workload; that in the node id is the first
	Name      string
	Namespace string
	Domain    string // the first domain of its DNS search path: namespace.svc.cluster.local
	Labels    mesh.Labels
	ClusterID string
	Network   string
	Networks  intern.List[string] // of the endpoints that the proxy wants, sorted; empty for all
	Node      string              // of Kubernetes
	Mode      Mode
	Locality  mesh.Locality
	// HTTP10 is true if clients and the application may use HTTP/1.0.
	HTTP10 bool
	// SplitRoutes is true if the proxy may get virtual hosts as resources of their own (VHDS): unless its metadata says VHDS: "false".
	SplitRoutes bool
	// Idle is how long a connection to the workload may be idle; 0 for Envoy's default.
	Idle time.Duration
	// Balance says which listeners give each new connection to the worker with the fewest.
	Balance Balance
	// OwnPorts are the ports at which its Envoy and its agent listen, sorted; ports that all proxies have (mesh.OwnPort) are left out.
	OwnPorts intern.List[uint32]
	// Version is the version that the agent reports.
	Version string
	// Envoy is the minor version of its Envoy 1; 0 if it did not report it.
	Envoy uint32
	// Extensions are the names of the extensions of its Envoy, in order; empty if it did not report them.
	Extensions []string
	// Group is the WorkloadGroup as whose workload the proxy asks to be registered; empty for none.
	Group string
	// Account is the service account that the proxy reports.
	Account string
	// NoCertificate is true if the proxy reports that it has no certificate of the mesh and cannot get one.
	NoCertificate bool
	// OtherAuthority is true if the proxy reports that its certificates come from an authority other than the control plane.
	OtherAuthority bool
	// Unprivileged is true if the proxy cannot listen at ports below 1024.
	Unprivileged bool
	// OnDemand says whether a gateway gets certificates when clients ask for them.
	OnDemand OnDemand
	// HostsOnDemand is true if the Envoy of a sidecar asks for the virtual hosts that its workload uses.
	HostsOnDemand bool
	// Topology describes the proxies in front of a gateway, if it has settings of its own.
	Topology Topology
	// Connections are the settings for connections of a gateway, one item; empty if it has none of its own.
	Connections intern.List[connection.Settings]
	// Metadata is all that its node says. Only conditions of EnvoyFilters are compared with it.
	Metadata *structpb.Struct
	// DNS is true if the agent of the proxy answers the DNS queries of the workload.
	DNS bool
	// BootstrapOf is the role of the proxy for whose bootstrap an agent asks for patches; empty if it does not ask.
	BootstrapOf Role
	// Identity is the authenticated identity of the proxy; zero if it is connected without TLS. Namespace and Account
	// are then unverified metadata of the proxy.
	Identity identity.Identity
	// From is the IP address from which the proxy connected; empty if it is not known.
	From string
	// Connected is when the proxy connected. It is zero unless Group is set.
	Connected time.Time
}

// Equal reports whether all fields are equal.
func (p *Proxy) Equal(o *Proxy) bool {
	return p == o || p != nil && o != nil &&
		p.ID == o.ID && p.Role == o.Role && p.Name == o.Name && p.Namespace == o.Namespace && p.Domain == o.Domain &&
		p.ClusterID == o.ClusterID && p.Network == o.Network && p.Networks == o.Networks && p.Topology == o.Topology && p.Connections == o.Connections && p.Node == o.Node && p.Mode == o.Mode && p.Locality == o.Locality &&
		p.Version == o.Version && p.Envoy == o.Envoy && p.HTTP10 == o.HTTP10 && p.SplitRoutes == o.SplitRoutes && p.Idle == o.Idle && p.Balance == o.Balance && p.OwnPorts == o.OwnPorts && slices.Equal(p.Addresses, o.Addresses) && p.Labels == o.Labels &&
		slices.Equal(p.Extensions, o.Extensions) && p.Group == o.Group && p.Account == o.Account && p.NoCertificate == o.NoCertificate && p.OtherAuthority == o.OtherAuthority && p.DNS == o.DNS && p.BootstrapOf == o.BootstrapOf && p.Unprivileged == o.Unprivileged && p.OnDemand == o.OnDemand && p.HostsOnDemand == o.HostsOnDemand && p.Identity == o.Identity && p.From == o.From && p.Connected.Equal(o.Connected) && proto.Equal(p.Metadata, o.Metadata)
}

// Balance says which listeners of a proxy give each new connection to the worker of Envoy that has the fewest, instead of whichever accepts it. The
// listener of redirected outbound connections never does: it hands them over to other listeners.
type Balance struct{ Inbound, Outbound bool }

// Origin is where a proxy runs: the address from which it connected, and its own ports. Two proxies on one host have different ports, because each
// port has one process.
type Origin struct {
	From  string
	Ports intern.List[uint32]
}

// Origin returns where the proxy runs.
func (p *Proxy) Origin() Origin { return Origin{p.From, p.OwnPorts} }

// InboundPort is a port where a workload serves.
type InboundPort struct {
	Number   uint32 // the port of the application
	Protocol mesh.Protocol
	// Host, Namespace, Name and Port describe the service on this port; the oldest one if there are several.
	Host, Namespace, Name string
	Port                  uint32
	// Bound is true if the port has its own socket, at the address Bind if that is not empty, although connections to other ports
	// are redirected.
	Bound bool
	Bind  string
	// To is the address and port of the application, or a "unix://" path; empty for the original destination.
	To string
	// Limited is the Sidecar that limits connections to the application; zero if none does.
	Limited api.Key
	// TLS is the Sidecar with the settings for TLS of clients that are not in the mesh; zero if none has any for the port.
	TLS api.Key
}

// PortTarget is a port of a workload for a port of a service that selects it.
type PortTarget struct{ Port, Target uint32 }

// GatewaySelector is a selector of Gateways. Namespace is their namespace if they are for gateways of their own namespace only, and else empty.
type GatewaySelector struct {
	Labels    mesh.Labels
	Namespace string
}

// Compare orders by labels, then namespace.
func (s GatewaySelector) Compare(o GatewaySelector) int {
	return cmp.Or(slices.CompareFunc(s.Labels.Items(), o.Labels.Items(), mesh.Label.Compare), cmp.Compare(s.Namespace, o.Namespace))
}

// Class identifies the proxies with equal facets, which all receive the same resources.
type Class struct {
	Namespace string
	// Sidecar is the Sidecar object that selects the proxy; zero if none does.
	Sidecar api.Key
	Mode    Mode
	// ShortNames is true if the proxy has the DNS search path of its namespace, so it can call the services of this
	// namespace by their names alone.
	ShortNames bool
	// Labels are the labels of the workload that occur in the source labels of rules.
	Labels mesh.Labels
	// Inbound are the ports where the workload serves, by number.
	Inbound intern.List[InboundPort]
	// Bind is the address of inbound listeners. It is empty if traffic is redirected.
	Bind string
	// Site is the place where the proxy runs. It is empty if the choice of endpoints does not depend on that.
	Site mesh.Site
	// Rules are the names of the DestinationRules of its namespace that select the proxy, oldest first.
	Rules intern.List[string]
	// Policies are the AuthorizationPolicies and RequestAuthentications that select the workload, sorted. Those for all workloads of
	// the namespace or the mesh are not among them.
	Policies intern.List[api.Key]
	// Filters are the EnvoyFilters that select the workload, sorted, and Conditions what patches of these and of the EnvoyFilters for all workloads
	// demand of proxies, as far as the proxy has it.
	Filters    intern.List[api.Key]
	Conditions intern.List[Condition]
	// Telemetry is the Telemetry that selects the workload; zero if none does. Those for all workloads of the namespace or the mesh do not
	// count here.
	Telemetry api.Key
	// Extensions are the WasmPlugins and TrafficExtensions that select the workload, sorted. Those for all workloads of the namespace or the
	// mesh are not among them.
	Extensions intern.List[api.Key]
	// HTTP10 is true if HTTP/1.0 is accepted.
	HTTP10 bool
	// DefaultLog is true if the Envoy of the proxy is too old for the format of some access log, which then has the default format.
	DefaultLog bool
	// OldStats is the minor version of an Envoy that is too old for all features of the logger for metrics; 0 for others, and while metrics are off.
	OldStats uint32
	// Idle is how long a connection to the workload may be idle; 0 for Envoy's default.
	Idle time.Duration
	// Balance says which listeners give each new connection to the worker with the fewest. A router has outbound listeners only.
	Balance Balance
	// Gateway is true if the proxy is a router: it has no workload, and no traffic is redirected to it.
	Gateway bool
	// Selectors are the selectors of the Gateways that a router serves, sorted. Another Gateway with one of them changes no class. Targets are its ports for the ports of the services that select it, sorted;
	// services that keep their own port numbers are not among them.
	Selectors intern.List[GatewaySelector]
	Targets   intern.List[PortTarget]
	// Datagrams are the ports of a router for the UDP ports of the services that select it, sorted, if gateways take HTTP/3.
	Datagrams intern.List[PortTarget]
	// Ingress is true if a router serves Ingresses.
	Ingress bool
	// Unprivileged is true if a router cannot listen at ports below 1024.
	Unprivileged bool
	// OnDemand is true if a router gets the certificates of its hosts when clients ask for them; see package view/gateway.
	OnDemand bool
	// HostsOnDemand is true if a sidecar gets the virtual hosts and clusters of HTTP hosts when its workload uses them.
	HostsOnDemand bool
	// Families are the IP versions of the proxy's addresses.
	Families mesh.Families
	// Cluster is the cluster of the proxy. It is empty if no service that the proxy sees has other addresses in another cluster.
	Cluster string
	// MTLS is the mutual TLS modes of the policy that selects the workload. Modes that it does not set are left to
	// policies for its namespace, and for the mesh.
	MTLS mesh.MTLS
	// NoCertificate is true if the proxy has no certificate of the mesh and cannot get one.
	NoCertificate bool
	// OtherAuthority is true if the certificates of the proxy come from an authority other than the control plane, so that its requests name its workload
	// in a header. It is false while metrics are off.
	OtherAuthority bool
	// Network is the network of the proxy, if gateways lead into it from others. It is empty otherwise: such a proxy reaches the same
	// endpoints through gateways as one whose network is not known.
	Network string
	// Networks are the networks of the endpoints that the proxy wants, sorted; empty for all.
	Networks intern.List[string]
	// Topology describes the proxies in front of a router, if it has settings of its own.
	Topology Topology
	// Connections are the settings for connections of a router, one item; empty if it has none of its own.
	Connections intern.List[connection.Settings]
	// Own are the addresses and ports at which others have a listener for the workload, which its own proxy has not. They exist only
	// for pods of headless services.
	Own intern.List[netip.AddrPort]
	// Names is true if agents of the class answer DNS, so that they need the addresses of names.
	Names bool
}

// Hash returns a hash of all fields. Equal classes have equal hashes in all processes.
func (c Class) Hash() omap.Hash {
	var h hashed
	h.flags(c.ShortNames, c.HTTP10, c.Gateway, c.DefaultLog, c.NoCertificate, c.Names, c.Unprivileged, c.Ingress, c.OnDemand, c.HostsOnDemand, c.OtherAuthority, c.Balance.Inbound, c.Balance.Outbound)
	h.number(int64(c.Mode))
	h.number(int64(c.Families))
	h.number(int64(c.Idle))
	h.number(int64(c.OldStats))
	at := c.Site.Locality
	h.text(c.Namespace, c.Cluster, c.Network, c.Bind, at.Region, at.Zone, at.SubZone)
	h.key(c.Sidecar)
	h.key(c.Telemetry)
	for _, labels := range []mesh.Labels{c.Labels, c.Site.Labels} {
		h.labels(labels)
	}
	for _, list := range []intern.List[string]{c.Rules, c.Networks} {
		for name := range list.All() {
			h.text(name)
		}
		h.end()
	}
	h.topology(c.Topology)
	for own := range c.Connections.All() {
		h.connections(own)
	}
	h.end()
	for at := range c.Own.All() {
		h.text(at.String())
	}
	h.end()
	for k := range c.Policies.All() {
		h.key(k)
	}
	h.end()
	h.selectors(c.Selectors)
	for _, list := range []intern.List[api.Key]{c.Filters, c.Extensions} {
		for k := range list.All() {
			h.key(k)
		}
		h.end()
	}
	for condition := range c.Conditions.All() {
		h.text(condition.Version)
		h.labels(condition.Metadata)
	}
	h.end()
	h.targets(c.Targets)
	h.targets(c.Datagrams)
	h.mtls(c.MTLS)
	for p := range c.Inbound.All() {
		h.flags(p.Bound)
		for _, n := range []int64{int64(p.Number), int64(p.Protocol), int64(p.Port)} {
			h.number(n)
		}
		h.text(p.Host, p.Namespace, p.Name, p.Bind, p.To)
		h.key(p.Limited)
		h.key(p.TLS)
	}
	return omap.Sum(h)
}

// hashed is an encoding of a value. Different values have different encodings.
type hashed []byte

func (h *hashed) number(n int64) { *h = binary.AppendVarint(*h, n) }

func (h *hashed) flags(flags ...bool) {
	for _, set := range flags {
		if set {
			*h = append(*h, 1)
		} else {
			*h = append(*h, 0)
		}
	}
}

// text writes each text behind its length plus one.
func (h *hashed) text(texts ...string) {
	for _, s := range texts {
		*h = append(binary.AppendUvarint(*h, uint64(len(s))+1), s...)
	}
}

func (h *hashed) topology(t Topology) {
	h.flags(t.Own, t.ProxyProtocol)
	h.number(int64(t.TrustedProxies))
	h.text(t.ClientCert)
}

func (h *hashed) connections(c connection.Settings) {
	h.flags(true) // an item is not the end of the list
	for _, l := range []connection.Limit[uint32]{c.ListenerBuffer, c.ClusterBuffer, c.Streams, c.StreamWindow, c.ConnectionWindow} {
		h.flags(l.Set)
		h.number(int64(l.Value))
	}
	for _, l := range []connection.Limit[time.Duration]{c.Idle, c.MaxAge, c.Drain, c.Request, c.Headers, c.StreamIdle, c.MaxStream} {
		h.flags(l.Set)
		h.number(int64(l.Value))
	}
	h.number(int64(c.Underscores))
	h.number(int64(c.Slashes))
	h.flags(c.MergeSlashes.Set, c.MergeSlashes.Value)
}

func (h *hashed) labels(list mesh.Labels) {
	for l := range list.All() {
		h.text(l.Name, l.Value)
	}
	h.end()
}

func (h *hashed) selectors(list intern.List[GatewaySelector]) {
	for s := range list.All() {
		h.text(s.Namespace)
		h.labels(s.Labels)
	}
	h.end()
}

func (h *hashed) targets(list intern.List[PortTarget]) {
	for t := range list.All() {
		h.number(int64(t.Port)) // at least 1, so it is not the end of the list
		h.number(int64(t.Target))
	}
	h.number(0)
}

func (h *hashed) mtls(m mesh.MTLS) {
	h.number(int64(m.Mode))
	for p := range m.Ports.All() {
		h.number(int64(p.Port)) // at least 1, so it is not the end of the list
		h.number(int64(p.Mode))
	}
	h.number(0)
}

// end marks the end of a list of texts: no text has the length -1.
func (h *hashed) end() { *h = append(*h, 0) }

func (h *hashed) key(k api.Key) { h.text(k.Kind, k.Namespace, k.Name) }
