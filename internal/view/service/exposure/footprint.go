package exposure

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Footprint is the ports, addresses and domains that a host takes up on the client's side. An index over the footprints
// of all hosts finds the hosts that take up the same port, address or domain. Lists of ports have each port once.
type Footprint struct {
	// Host is the host that the footprint belongs to.
	Host string
	// Created is the rank of the host's service; see Service.Created. The first of several candidates gets an address.
	Created int64
	// HTTPPorts are the service ports where the Host header decides that a request is for the host.
	HTTPPorts []uint32
	// SharedPorts are the HTTP ports where the host is reached at any address, together with other hosts. On the other
	// HTTP ports it has addresses of its own.
	SharedPorts []uint32
	// DedicatedPorts are the ports with protocol detection at addresses of the host's own. A request there is for this
	// host, whatever its Host header says.
	DedicatedPorts []uint32
	// DynamicPorts are the HTTP ports where the proxy resolves the host of each request (resolution DYNAMIC_DNS).
	DynamicPorts []uint32
	// GRPCWebPorts are the HTTP ports that are declared gRPC-Web.
	GRPCWebPorts []uint32
	// Connections are the addresses where connections to the host are recognised by address or by SNI. An empty IP means
	// any address.
	Connections []ListenAddress
	// HTTPAddresses are the addresses of Sidecar listeners where requests for the host are recognised by their Host
	// header.
	HTTPAddresses []HTTPAddress
	// RouteOnlyPorts are the ports for which a route configuration must exist, although the host has no virtual host in
	// it.
	RouteOnlyPorts []uint32
	// VIPs are the addresses that may be used instead of the host's name in the Host header, on every HTTP port.
	VIPs []string
	// OverruledNamespaces are the namespaces whose declaration of the host lost the conflict.
	OverruledNamespaces []string
	// ForGateways says that the host differs for gateways; see Service.DiffersForGateways. ForVersions says that it differs for proxies
	// with addresses of one version of IP that is not the one of most; see Service.ResolvesNames.
	ForGateways, ForVersions bool
	// HoldsVIPs says that the VIPs belong to a Service of a Kubernetes cluster that the base view does not have. It is set in overlays
	// only. The clients do not get the listeners of the base view at these addresses.
	HoldsVIPs bool
	// Base is the footprint of the host in the base view. It is set in overlays only, where this footprint replaces it.
	Base *Footprint
}

// Address is where a client reaches something. An empty IP means any address.
type Address struct {
	IP   string
	Port uint32
}

// IsUnix reports whether it is a Unix domain socket.
func (a Address) IsUnix() bool { return strings.HasPrefix(a.IP, "unix://") }

// Compare orders by IP, then by port.
func (a Address) Compare(o Address) int {
	if c := strings.Compare(a.IP, o.IP); c != 0 {
		return c
	}
	return int(a.Port) - int(o.Port)
}

// AppendTo appends an unambiguous encoding.
func (a Address) AppendTo(b []byte) []byte {
	return strconv.AppendUint(append(append(b, a.IP...), ' '), uint64(a.Port), 10)
}

// PortNumber is a port as the key of an ordered map.
type PortNumber uint32

// Compare orders by number.
func (n PortNumber) Compare(o PortNumber) int { return int(n) - int(o) }

// AppendTo appends an unambiguous encoding.
func (n PortNumber) AppendTo(b []byte) []byte { return strconv.AppendUint(b, uint64(n), 10) }

// HostPort names a port of a host.
type HostPort struct {
	Host string
	Port uint32
}

// Compare orders by host, then by port.
func (p HostPort) Compare(o HostPort) int {
	if c := strings.Compare(p.Host, o.Host); c != 0 {
		return c
	}
	return int(p.Port) - int(o.Port)
}

// AppendTo appends an unambiguous encoding.
func (p HostPort) AppendTo(b []byte) []byte {
	return strconv.AppendUint(append(append(b, p.Host...), ' '), uint64(p.Port), 10)
}

// OutputName is the host.
func (f Footprint) OutputName() string { return f.Host }

// Size is 0 because a footprint is not sent.
func (Footprint) Size() int { return 0 }

// ContentHash covers all fields.
func (f Footprint) ContentHash() omap.Hash { return omap.Sum(f.append(nil)) }

func (f Footprint) append(b []byte) []byte {
	b = append(append(b, f.Host...), 0)
	b = strconv.AppendInt(b, f.Created, 10)
	for kind, ports := range [][]uint32{f.HTTPPorts, f.SharedPorts, f.DedicatedPorts, f.DynamicPorts, f.RouteOnlyPorts, f.GRPCWebPorts} {
		for _, p := range ports {
			b = PortNumber(p).AppendTo(append(b, 1, byte(kind)))
		}
	}
	for _, c := range f.Connections {
		b = c.ListenOptions.AppendTo(c.Address.AppendTo(append(b, 2)))
	}
	for _, c := range f.HTTPAddresses {
		b = strconv.AppendBool(c.ListenOptions.AppendTo(c.Address.AppendTo(append(b, 6))), c.Dynamic)
		b = strconv.AppendBool(b, c.GRPCWeb)
	}
	for _, v := range f.VIPs {
		b = append(append(b, 3), v...)
	}
	for _, o := range f.OverruledNamespaces {
		b = append(append(b, 4), o...)
	}
	if f.ForGateways {
		b = append(b, 7)
	}
	if f.ForVersions {
		b = append(b, 8)
	}
	if f.HoldsVIPs {
		b = append(b, 9)
	}
	if f.Base != nil {
		b = f.Base.append(append(b, 5))
	}
	return b
}

// Equal reports whether two lists have equal footprints in the same order.
func Equal(a, b []Footprint) bool {
	return slices.EqualFunc(a, b, func(a, b Footprint) bool { return a.ContentHash() == b.ContentHash() })
}

func isUnspecified(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && a.IsUnspecified()
}

// IsAddress reports whether a host is an address.
func IsAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// SplitAddresses returns the single addresses of a service in canonical form, each once, and whether it has address
// blocks. A host that is an IP address is one of them. The unspecified address, such as 0.0.0.0, is none of them: no connection goes there, and
// it is the address of the listener for services without an address.
func SplitAddresses(host string, addresses []string) (singles []string, blocks bool) {
	if a, ok := parseAddress(host); ok && !isUnspecified(a) { // the host may be an IP address
		singles = append(singles, a)
	}
	for _, text := range addresses {
		if a, ok := parseAddress(text); ok && !isUnspecified(a) {
			singles = union(singles, []string{a})
		}
	}
	return singles, len(BlocksOf(addresses)) > 0
}

// parseAddress parses an address, or a block (CIDR) that holds one address only, into its canonical form.
func parseAddress(text string) (string, bool) {
	if p, err := netip.ParsePrefix(text); err == nil && p.IsSingleIP() {
		return p.Addr().Unmap().String(), true
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return a.Unmap().String(), true
	}
	return "", false
}

// BlocksOf returns the blocks among addresses.
func BlocksOf(addresses []string) []string {
	var out []string
	for _, text := range addresses {
		if p, err := netip.ParsePrefix(text); err == nil && !p.IsSingleIP() {
			out = union(out, []string{p.Masked().String()})
		}
	}
	return out
}

// Candidate is a host that asks for an address or a domain. Of several candidates the first in the order of Compare gets
// it.
type Candidate struct {
	// Created is the rank of the host's service, or one of the markers DynamicHTTPCandidate, GRPCWebCandidate, HolderCandidate and OnlyInBase.
	Created int64
	// Host is empty for the candidate that represents all HTTP hosts of a port together.
	Host string
	ListenOptions
}

// IsService reports whether a Service of a Kubernetes cluster declares the host.
func (c Candidate) IsService() bool { return c.Created != FirstRoutes && c.Created < -BeforeEntries/2 }

// Compare orders by creation time, then by host, then by listen options.
func (c Candidate) Compare(o Candidate) int {
	switch {
	case c.Created < o.Created:
		return -1
	case c.Created > o.Created:
		return 1
	}
	return cmp.Or(strings.Compare(c.Host, o.Host), c.ListenOptions.compare(o.ListenOptions))
}

// AppendTo appends an unambiguous encoding.
func (c Candidate) AppendTo(b []byte) []byte {
	return c.ListenOptions.AppendTo(append(strconv.AppendInt(b, c.Created, 10), " "+c.Host...))
}

// Index groups footprints by port, address and domain. A host that an overlay changes is also in its groups of
// the base view, with the creation time OnlyInBase, so that the overlay computes these groups as well.
type Index[C comparable] struct {
	// HTTPPorts maps a port to the hosts that have a virtual host there. The empty name represents a route
	// configuration that is needed without hosts.
	HTTPPorts query.Groups[C, PortNumber, omap.Name]
	// Redirected maps an address to its candidates for proxies with traffic redirection, where connections keep the
	// address that the client dialled.
	Redirected query.Groups[C, Address, Candidate]
	// Loopback maps an address to its candidates for proxies without traffic redirection (interception mode NONE), where
	// listeners bind the loopback address. The IP is empty unless a Sidecar names another one.
	Loopback query.Groups[C, Address, Candidate]
	// DedicatedPorts maps a port with protocol detection at addresses of a host's own to that host.
	DedicatedPorts query.Groups[C, HostPort, omap.Name]
	// Domains maps a domain to the hosts that ask for it on an HTTP port.
	Domains query.Groups[C, Domain, Candidate]
	// Overruled maps a namespace to the hosts whose declaration by it lost the conflict, and to the cluster hosts
	// for which such a host is a short name. The empty name maps to all hosts with an overruled declaration.
	Overruled query.Groups[C, omap.Name, omap.Name]
	// ForGateways and ForVersions map the empty name to the hosts that differ for gateways, and for proxies with addresses of one version of IP that
	// is not the one of most.
	ForGateways, ForVersions query.Groups[C, omap.Name, omap.Name]
}

// DynamicHTTPCandidate is the creation time of a candidate without a host that represents the HTTP hosts of an address
// which the proxy resolves for each request.
const DynamicHTTPCandidate = int64(1)

// GRPCWebCandidate is the creation time of a candidate without a host that represents the HTTP hosts of an address
// whose port is declared gRPC-Web.
const GRPCWebCandidate = int64(2)

// HolderCandidate is the creation time of a candidate without a host that represents a footprint with HoldsVIPs.
const HolderCandidate = int64(3)

// OnlyInBase is the creation time of a candidate that represents the footprint of a host in the base view, if an
// overlay changes the host. It is later than any real time.
const OnlyInBase = int64(1)<<62 - 1

// DefineIndex defines the groups over a collection of footprints. tag begins the names of the queries; domain is
// the cluster domain.
func DefineIndex[C comparable](g *query.Graph, tag, domain string, c query.Collection[C, Footprint]) *Index[C] {
	t := &Index[C]{}
	t.HTTPPorts = query.GroupBy(g, tag+"httpPorts", c, func(f Footprint, add func(PortNumber, omap.Name)) {
		f.withBase(func(f Footprint) {
			for _, p := range f.HTTPPorts {
				add(PortNumber(p), omap.Name(f.Host))
			}
			for _, p := range f.RouteOnlyPorts {
				add(PortNumber(p), "")
			}
		})
	})
	t.Redirected = query.GroupBy(g, tag+"listenAddresses", c, func(f Footprint, add func(Address, Candidate)) {
		f.withBase(func(f Footprint) {
			for _, p := range f.SharedPorts {
				add(Address{Port: p}, Candidate{})
			}
			f.eachCandidate(add, func(c ListenAddress) Address { return c.Address })
		})
	})
	t.Loopback = query.GroupBy(g, tag+"localPorts", c, func(f Footprint, add func(Address, Candidate)) {
		f.withBase(func(f Footprint) {
			for _, p := range f.HTTPPorts {
				add(Address{Port: p}, Candidate{})
			}
			for _, p := range f.RouteOnlyPorts {
				add(Address{Port: p}, Candidate{})
			}
			f.eachCandidate(add, ListenAddress.loopback)
		})
	})
	t.DedicatedPorts = query.GroupBy(g, tag+"ownPorts", c, func(f Footprint, add func(HostPort, omap.Name)) {
		f.withBase(func(f Footprint) {
			for _, p := range f.DedicatedPorts {
				add(HostPort{f.Host, p}, omap.Name(f.Host))
			}
		})
	})
	t.Domains = DefineDomains(g, tag+"domains", c)
	t.Overruled = defineOverruled(g, tag, domain, c)
	t.ForGateways = whichHosts(g, tag+"forGateways", c, func(f Footprint) bool { return f.ForGateways })
	t.ForVersions = whichHosts(g, tag+"forVersions", c, func(f Footprint) bool { return f.ForVersions })
	return t
}

// IsService reports whether a Service of a Kubernetes cluster declares the host.
func (f Footprint) IsService() bool { return Candidate{Created: f.Created}.IsService() }

// withBase calls do with a footprint, and with the footprint of its host in the base view if an overlay changes the host.
func (f Footprint) withBase(do func(f Footprint)) {
	do(f)
	if f.Base != nil {
		base := *f.Base
		base.Host, base.Created = f.Host, OnlyInBase
		do(base)
	}
}

// defineOverruled groups hosts by the namespaces whose declaration of them lost; all of them are in the group of the empty name.
func defineOverruled[C comparable](g *query.Graph, tag, domain string, c query.Collection[C, Footprint]) query.Groups[C, omap.Name, omap.Name] {
	return query.GroupBy(g, tag+"lostDeclarations", c, func(f Footprint, add func(omap.Name, omap.Name)) {
		for _, ns := range f.OverruledNamespaces {
			add(omap.Name(ns), omap.Name(f.Host))
			if long, ok := mesh.LongHost(f.Host, domain); ok {
				add(omap.Name(ns), omap.Name(long))
			}
		}
		if len(f.OverruledNamespaces) > 0 {
			add("", omap.Name(f.Host))
		}
	})
}

// whichHosts puts the hosts whose footprint differs says yes to into the group of the empty name.
func whichHosts[C comparable](g *query.Graph, name string, c query.Collection[C, Footprint], differs func(Footprint) bool) query.Groups[C, omap.Name, omap.Name] {
	return query.GroupBy(g, name, c, func(f Footprint, add func(omap.Name, omap.Name)) {
		f.withBase(func(f Footprint) {
			if differs(f) {
				add("", omap.Name(f.Host))
			}
		})
	})
}

// Domain is a name or an address in the Host header of requests to a port.
type Domain struct {
	Name string
	Port uint32
}

// Compare orders by name, then by port.
func (d Domain) Compare(o Domain) int {
	return cmp.Or(strings.Compare(d.Name, o.Name), cmp.Compare(d.Port, o.Port))
}

// AppendTo appends an unambiguous encoding.
func (d Domain) AppendTo(b []byte) []byte {
	return strconv.AppendUint(append(append(b, d.Name...), ' '), uint64(d.Port), 10)
}

// DefineDomains groups footprints by the domains that several hosts may ask for: addresses, and names that may be the
// short name of another host. All other names belong to one host anyway and have no group.
func DefineDomains[C comparable](g *query.Graph, name string, c query.Collection[C, Footprint]) query.Groups[C, Domain, Candidate] {
	return query.GroupBy(g, name, c, func(f Footprint, add func(Domain, Candidate)) {
		short := mesh.LooksShort(f.Host)
		for _, p := range f.HTTPPorts {
			if short {
				add(Domain{f.Host, p}, Candidate{Created: f.Created, Host: f.Host})
			}
			for _, v := range f.VIPs {
				add(Domain{v, p}, Candidate{Created: f.Created, Host: f.Host})
			}
		}
	})
}
