// Package exposure says which ports, addresses and names a host takes up at its clients: its Footprint, and the Index that finds the hosts which take up the
// same ones. Footprints do not change once made. The package starts no goroutines.
package exposure

import (
	"cmp"
	"math"
	"slices"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// ListenOptions say how a host is served at an address, as far as a Sidecar listener decides it. The zero value means: as
// the service port says, at the service's own address.
type ListenOptions struct {
	// Protocol replaces the protocol of the service port. Auto keeps the protocol of the port.
	Protocol mesh.Protocol
	// FromSidecar says that the address belongs to a Sidecar listener, not to the host. Bound says that the listener
	// has a socket of its own.
	FromSidecar, Bound bool
}

func (t ListenOptions) compare(o ListenOptions) int {
	return cmp.Or(cmp.Compare(t.Protocol, o.Protocol), compareBools(t.FromSidecar, o.FromSidecar), compareBools(t.Bound, o.Bound))
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// AppendTo appends an unambiguous encoding. The encoding of the zero value is empty.
func (t ListenOptions) AppendTo(b []byte) []byte {
	if t == (ListenOptions{}) {
		return b
	}
	kind := byte(1)
	if t.FromSidecar {
		kind |= 2
	}
	if t.Bound {
		kind |= 4
	}
	return append(b, 0, kind, byte(t.Protocol))
}

// ListenAddress is an address at which a host asks for connections.
type ListenAddress struct {
	Address
	ListenOptions
}

// loopback is the address for proxies without traffic redirection: any IP, which means the loopback address for them,
// unless a Sidecar listener names another address.
func (c ListenAddress) loopback() Address {
	if c.FromSidecar && c.IP != mesh.Loopback {
		return c.Address
	}
	return Address{Port: c.Port}
}

// HTTPAddress is an address at which a host asks for the requests that name it in their Host header.
type HTTPAddress struct {
	ListenAddress
	// Dynamic says that the proxy resolves the host of each request.
	Dynamic bool
	// GRPCWeb says that the port is declared gRPC-Web.
	GRPCWeb bool
}

// eachCandidate calls add with every address of the footprint and its candidate, except for ports that HTTP hosts share.
// at maps a listen address to the key in the index.
func (f Footprint) eachCandidate(add func(Address, Candidate), at func(ListenAddress) Address) {
	for _, p := range f.DynamicPorts {
		add(Address{Port: p}, Candidate{Created: DynamicHTTPCandidate})
	}
	for _, p := range f.GRPCWebPorts {
		add(Address{Port: p}, Candidate{Created: GRPCWebCandidate})
	}
	if f.HoldsVIPs {
		for _, ip := range f.VIPs {
			for _, p := range f.HTTPPorts {
				add(Address{ip, p}, Candidate{Created: HolderCandidate})
			}
		}
	}
	for _, c := range f.HTTPAddresses {
		add(at(c.ListenAddress), Candidate{ListenOptions: c.ListenOptions})
		if c.Dynamic {
			add(at(c.ListenAddress), Candidate{Created: DynamicHTTPCandidate})
		}
		if c.GRPCWeb {
			add(at(c.ListenAddress), Candidate{Created: GRPCWebCandidate})
		}
	}
	for _, c := range f.Connections {
		add(at(c), Candidate{f.Created, f.Host, c.ListenOptions})
	}
}

// Place is a place where clients of a set can reach a port of a service. The zero value is the service's own
// addresses, or any address if it has none.
type Place struct {
	// IP is the address of a Sidecar listener. It is empty at the service's own addresses.
	IP string
	// Bound says that the listener has a socket of its own.
	Bound bool
	// Protocol is the protocol of the Sidecar listener. It counts only if HasProtocol is set.
	Protocol mesh.Protocol
	// HasProtocol says that the Sidecar listener declares a protocol.
	HasProtocol bool
	// NoWildcard says that a Sidecar listener has the wildcard address of the port, so the service cannot be reached
	// there. NoRoutes says that the route configuration of the port belongs to a Sidecar listener, so the host has no
	// virtual host in it.
	NoWildcard, NoRoutes bool
}

// ProtocolOf is the protocol that is spoken with a port here. A port that is neither HTTP nor has protocol detection
// keeps its protocol where the listener says HTTP.
func (at Place) ProtocolOf(p mesh.Port) mesh.Protocol {
	if at.HasProtocol && (!at.Protocol.IsHTTP() || p.Protocol.Sniffed()) {
		return at.Protocol
	}
	return p.Protocol
}

// listenAddress is the address of a port at an IP, with the options of the exposure.
func (at Place) listenAddress(ip string, p mesh.Port) ListenAddress {
	c := ListenAddress{Address{ip, p.Number}, ListenOptions{FromSidecar: at.IP != "", Bound: at.Bound}}
	if c.IsUnix() { // it has all ports of the service
		c.Port, c.Protocol = 0, at.Protocol
		return c
	}
	if as := at.ProtocolOf(p); as != p.Protocol {
		c.Protocol = as
	}
	return c
}

// DefaultPlace exposes every port at the addresses of its service.
func DefaultPlace(string, uint32) []Place { return []Place{{}} }

// Addresses are the addresses of a service.
type Addresses struct {
	// Singles are its own addresses; endpoints are the addresses of its endpoints, if it is headless.
	Singles, Endpoints []string
	// Blocks says that it also has address blocks, and cluster that it is a headless Service of a Kubernetes cluster.
	Blocks, Headless, Cluster bool
}

// AddExposedAddress adds a port at the address of a Sidecar listener.
func (f *Footprint) AddExposedAddress(p mesh.Port, at Place, dynamic bool) {
	c, protocol := at.listenAddress(at.IP, p), at.ProtocolOf(p)
	http := protocol.IsHTTP()
	if http || protocol.Sniffed() {
		f.HTTPPorts = union(f.HTTPPorts, []uint32{p.Number})
		options := ListenOptions{FromSidecar: true, Bound: at.Bound}
		f.HTTPAddresses = append(f.HTTPAddresses, HTTPAddress{ListenAddress{c.Address, options}, http && dynamic, protocol == mesh.GRPCWeb})
	}
	if !http && !slices.Contains(f.Connections, c) {
		f.Connections = append(f.Connections, c)
	}
}

// AddHTTP adds an HTTP port that the host shares with others.
func (f *Footprint) AddHTTP(p mesh.Port, at Place, dynamic bool) {
	if at.NoWildcard {
		return
	}
	f.addRoutes(p, at)
	f.SharedPorts = union(f.SharedPorts, []uint32{p.Number})
	if dynamic {
		f.DynamicPorts = union(f.DynamicPorts, []uint32{p.Number})
	}
	if at.ProtocolOf(p) == mesh.GRPCWeb {
		f.GRPCWebPorts = union(f.GRPCWebPorts, []uint32{p.Number})
	}
}

// addRoutes adds a virtual host for a port, or the port's route configuration only.
func (f *Footprint) addRoutes(p mesh.Port, at Place) {
	if at.NoRoutes {
		f.RouteOnlyPorts = union(f.RouteOnlyPorts, []uint32{p.Number})
		return
	}
	f.HTTPPorts = union(f.HTTPPorts, []uint32{p.Number})
}

// AddConnections adds the addresses of a port that is not declared as HTTP: TCP, TLS, or a port with protocol detection.
func (f *Footprint) AddConnections(p mesh.Port, at Place, own Addresses) {
	list, protocol := own.Singles, at.ProtocolOf(p)
	byEndpoint := own.Headless && (own.Cluster || !protocol.IsTLS())
	if byEndpoint {
		list = own.Endpoints
	}
	for _, ip := range list {
		f.Connections = append(f.Connections, at.listenAddress(ip, p))
	}
	// A block of addresses is matched at the wildcard address.
	anywhere := !at.NoWildcard && (own.Blocks || len(own.Singles) == 0 && !byEndpoint)
	if anywhere {
		f.Connections = append(f.Connections, at.listenAddress("", p))
	}
	if !protocol.Sniffed() {
		return
	}
	if anywhere || len(list) > 0 {
		f.addRoutes(p, at)
	}
	if anywhere {
		f.SharedPorts = union(f.SharedPorts, []uint32{p.Number})
	}
	if len(list) > 0 {
		f.DedicatedPorts = union(f.DedicatedPorts, []uint32{p.Number})
	}
}

func union[V comparable](a, b []V) []V {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

// FirstRoutes is the creation time of routes for an address as a host: they come before any service that has this address.
const FirstRoutes = math.MinInt64

// AddHTTPOf adds the parts of the footprint of a service where hosts are recognised by name: HTTP ports and TLS
// addresses. portOf returns a port of the service.
func (f *Footprint) AddHTTPOf(portOf func(number uint32) (mesh.Port, bool), whole Footprint) {
	f.SharedPorts = union(f.SharedPorts, whole.SharedPorts)
	f.RouteOnlyPorts = union(f.RouteOnlyPorts, whole.RouteOnlyPorts)
	for _, port := range whole.HTTPPorts {
		if slices.Contains(whole.SharedPorts, port) {
			f.HTTPPorts = union(f.HTTPPorts, []uint32{port})
		}
	}
	for _, c := range whole.HTTPAddresses {
		f.HTTPPorts = union(f.HTTPPorts, []uint32{c.Port})
		f.HTTPAddresses = union(f.HTTPAddresses, []HTTPAddress{c})
	}
	for _, c := range whole.Connections {
		p, _ := portOf(c.Port)
		if c.Protocol != mesh.Auto {
			p.Protocol = c.Protocol
		}
		if p.Protocol.IsTLS() {
			f.Connections = append(f.Connections, c)
		}
	}
}

// BeforeEntries is how much earlier a Service of a Kubernetes cluster counts as created than it was. So a Service gets an address or a name
// before any ServiceEntry, whatever their age.
const BeforeEntries = int64(1) << 61
