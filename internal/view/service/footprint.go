package service

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
)

// Footprint is what a host takes up on a client's side: ports, addresses. Who else wants the same is found by grouping
// the footprints of all hosts.
type Footprint struct {
	Host    string
	Created int64
	// HTTP are the ports where requests for it are told by their Host.
	HTTP []uint32
	// Shared are those of them where it is reached at any address, beside other hosts; at the others it has addresses of
	// its own.
	Shared []uint32
	// Own are the sniffed ports at addresses of its own: whatever Host a request names there, it is for this one.
	Own []uint32
	// Dynamic are the HTTP ports where the proxy resolves the host of each request.
	Dynamic []uint32
	// Web are the HTTP ports that are declared gRPC-Web.
	Web []uint32
	// TCP are the addresses where connections to it are told by their address, or by the name in TLS; an empty IP is any.
	TCP []Connections
	// Requests are what listeners of a Sidecar have where requests for it are told by their Host, at addresses of theirs.
	Requests []Requests
	// Unnamed are the ports whose routes, although needed, are not for this host.
	Unnamed []uint32
	// VIPs are the addresses which are as good as the host's name on its HTTP ports.
	VIPs []string
	// Others are the namespaces that declare the host in vain.
	Others []string
	// Gone are what the host would take up if the overlay did not change it (see package scope).
	Gone *Footprint
}

// Address is an address and port on which a client reaches something.
type Address struct {
	IP   string
	Port uint32
}

// Compare orders by IP, then port.
func (a Address) Compare(o Address) int {
	if c := strings.Compare(a.IP, o.IP); c != 0 {
		return c
	}
	return int(a.Port) - int(o.Port)
}

// AppendTo appends an unambiguous form.
func (a Address) AppendTo(b []byte) []byte {
	return strconv.AppendUint(append(append(b, a.IP...), ' '), uint64(a.Port), 10)
}

// Number is a port as a key.
type Number uint32

// Compare orders by number.
func (n Number) Compare(o Number) int { return int(n) - int(o) }

// AppendTo appends an unambiguous form.
func (n Number) AppendTo(b []byte) []byte { return strconv.AppendUint(b, uint64(n), 10) }

// OwnPort names a port of a host.
type OwnPort struct {
	Host string
	Port uint32
}

// Compare orders by host, then port.
func (p OwnPort) Compare(o OwnPort) int {
	if c := strings.Compare(p.Host, o.Host); c != 0 {
		return c
	}
	return int(p.Port) - int(o.Port)
}

// AppendTo appends an unambiguous form.
func (p OwnPort) AppendTo(b []byte) []byte {
	return strconv.AppendUint(append(append(b, p.Host...), ' '), uint64(p.Port), 10)
}

// OutputName is the host.
func (f Footprint) OutputName() string { return f.Host }

// Size is 0.
func (Footprint) Size() int { return 0 }

// ContentHash covers all of it.
func (f Footprint) ContentHash() omap.Hash { return omap.Sum(f.append(nil)) }

func (f Footprint) append(b []byte) []byte {
	b = append(append(b, f.Host...), 0)
	b = strconv.AppendInt(b, f.Created, 10)
	for kind, ports := range [][]uint32{f.HTTP, f.Shared, f.Own, f.Dynamic, f.Unnamed, f.Web} {
		for _, p := range ports {
			b = Number(p).AppendTo(append(b, 1, byte(kind)))
		}
	}
	for _, c := range f.TCP {
		b = c.Terms.AppendTo(c.Address.AppendTo(append(b, 2)))
	}
	for _, c := range f.Requests {
		b = strconv.AppendBool(c.Terms.AppendTo(c.Address.AppendTo(append(b, 6))), c.Dynamic)
		b = strconv.AppendBool(b, c.Web)
	}
	for _, v := range f.VIPs {
		b = append(append(b, 3), v...)
	}
	for _, o := range f.Others {
		b = append(append(b, 4), o...)
	}
	if f.Gone != nil {
		b = f.Gone.append(append(b, 5))
	}
	return b
}

func (f Footprint) equal(o Footprint) bool {
	return f.Host == o.Host && f.Created == o.Created && slices.Equal(f.HTTP, o.HTTP) && slices.Equal(f.Shared, o.Shared) &&
		slices.Equal(f.Own, o.Own) && slices.Equal(f.Dynamic, o.Dynamic) && slices.Equal(f.Web, o.Web) && slices.Equal(f.Unnamed, o.Unnamed) &&
		slices.Equal(f.TCP, o.TCP) && slices.Equal(f.Requests, o.Requests) && slices.Equal(f.VIPs, o.VIPs) && slices.Equal(f.Others, o.Others) &&
		(f.Gone == nil) == (o.Gone == nil) && (f.Gone == nil || f.Gone.equal(*o.Gone))
}

func equalFootprints(a, b []Footprint) bool { return slices.EqualFunc(a, b, Footprint.equal) }

// EqualFootprints reports whether two lists are the same.
func EqualFootprints(a, b []Footprint) bool { return equalFootprints(a, b) }

// Footprint is what a view's host takes up.
func (q *Queries) Footprint(r *query.Reader, v View) (Footprint, bool) {
	return q.FootprintAt(r, v, Everywhere)
}

// FootprintAt is what a view's host takes up where the places for each of its ports are said, given the namespace that
// declares it.
func (q *Queries) FootprintAt(r *query.Reader, v View, places func(namespace string, port uint32) []Place) (Footprint, bool) {
	if s, ok := q.Service.Get(r, v); ok {
		return q.footprint(r, s, places), true
	}
	if namespace, ok := q.routesOnly(r, v); ok {
		return q.routed(r, v, func(_ string, port uint32) []Place { return places(namespace, port) }), true
	}
	return Footprint{}, false
}

// headless reports whether a service is reached at the addresses of its endpoints: it has no others, and connections go
// where the client was going.
func (q *Queries) headless(r *query.Reader, s *Service) bool {
	if s.Resolution != mesh.Passthrough || len(s.Addresses) > 0 || isAddress(s.Host) {
		return false
	}
	for _, p := range s.Parts {
		if e, ok := q.tables.Endpoints.Get(r, p.Object); ok && (len(e.Selector) > 0 || len(e.Inline) > 0) {
			return true
		}
	}
	return false
}

// endpointAddresses are the addresses of a service's endpoints, each once.
func (q *Queries) endpointAddresses(r *query.Reader, s *Service, port uint32) []string {
	var out []string
	for _, e := range q.Endpoints(r, s, port) {
		if a, err := netip.ParseAddr(e.Address); err == nil && a.Zone() == "" {
			out = append(out, a.Unmap().String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// addresses are the single addresses of a service in one spelling, each once, and whether it has blocks of them.
func addresses(s *Service) (singles []string, blocks bool) {
	if a, ok := single(s.Host); ok { // a host may be an address
		singles = append(singles, a)
	}
	for _, text := range s.Addresses {
		if a, ok := single(text); ok {
			singles = union(singles, []string{a})
		}
	}
	return singles, len(s.Blocks()) > 0
}

// single reads an address, also where it is written as a block of one.
func single(text string) (string, bool) {
	if p, err := netip.ParsePrefix(text); err == nil && p.IsSingleIP() {
		return p.Addr().Unmap().String(), true
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return a.Unmap().String(), true
	}
	return "", false
}

// Blocks are the blocks of addresses of a service in one spelling, each once.
func (s *Service) Blocks() []string {
	var out []string
	for _, text := range s.Addresses {
		if p, err := netip.ParsePrefix(text); err == nil && !p.IsSingleIP() {
			out = union(out, []string{p.Masked().String()})
		}
	}
	return out
}

// Claimant wants an address. The oldest gets it.
type Claimant struct {
	Created int64
	Host    string // empty for all HTTP hosts together
	Terms
}

// Compare orders by age, then host, then terms.
func (c Claimant) Compare(o Claimant) int {
	switch {
	case c.Created < o.Created:
		return -1
	case c.Created > o.Created:
		return 1
	}
	return cmp.Or(strings.Compare(c.Host, o.Host), c.Terms.compare(o.Terms))
}

// AppendTo appends an unambiguous form.
func (c Claimant) AppendTo(b []byte) []byte {
	return c.Terms.AppendTo(append(strconv.AppendInt(b, c.Created, 10), " "+c.Host...))
}

// Taken groups footprints by what they take up. In an overlay, what a changed host no longer takes up is in the groups
// under the host's name with an age of never, so that the overlay looks at it.
type Taken[C comparable] struct {
	// HTTP: port -> hosts told by name there, and "" where the port's routes are needed whoever is in them.
	HTTP *query.Groups[C, Number, omap.Name]
	// Listen: address -> who wants it, where connections keep the address they were dialled at.
	Listen *query.Groups[C, Address, Claimant]
	// Local: port (with an empty IP) -> who wants it, where every listener binds the loopback address.
	Local *query.Groups[C, Address, Claimant]
	// Own: host and port -> that host, for sniffed ports at addresses of a host's own.
	Own *query.Groups[C, OwnPort, omap.Name]
	// Names: domain -> hosts that want it, on an HTTP port.
	Names *query.Groups[C, Domain, Claimant]
	// Lost: namespace -> hosts it declares in vain, and those of which they are short names; "" -> hosts that anybody
	// declares in vain.
	Lost *query.Groups[C, omap.Name, omap.Name]
}

// DynamicHTTP stands, as an age without a host, for HTTP hosts which the proxy resolves for each request.
const DynamicHTTP = int64(1)

// WebHTTP stands likewise for HTTP hosts whose port is declared gRPC-Web.
const WebHTTP = int64(2)

// Never is the age of who only used to want an address.
const Never = int64(1)<<62 - 1

// DefineTaken adds the groups of a collection of footprints; tag tells their names apart, domain is that of cluster hosts.
func DefineTaken[C comparable](g *query.Graph, tag, domain string, c *query.Collection[C, Footprint]) *Taken[C] {
	each := func(f Footprint, do func(f Footprint)) {
		do(f)
		if f.Gone != nil {
			gone := *f.Gone
			gone.Host, gone.Created = f.Host, Never
			do(gone)
		}
	}
	t := &Taken[C]{}
	t.HTTP = query.GroupBy(g, tag+"httpPorts", c, func(f Footprint, add func(Number, omap.Name)) {
		each(f, func(f Footprint) {
			for _, p := range f.HTTP {
				add(Number(p), omap.Name(f.Host))
			}
			for _, p := range f.Unnamed {
				add(Number(p), "")
			}
		})
	})
	t.Listen = query.GroupBy(g, tag+"listenAddresses", c, func(f Footprint, add func(Address, Claimant)) {
		each(f, func(f Footprint) {
			for _, p := range f.Shared {
				add(Address{Port: p}, Claimant{})
			}
			f.listen(add, func(c Connections) Address { return c.Address })
		})
	})
	t.Local = query.GroupBy(g, tag+"localPorts", c, func(f Footprint, add func(Address, Claimant)) {
		each(f, func(f Footprint) {
			for _, p := range f.HTTP {
				add(Address{Port: p}, Claimant{})
			}
			for _, p := range f.Unnamed {
				add(Address{Port: p}, Claimant{})
			}
			f.listen(add, Connections.local)
		})
	})
	t.Own = query.GroupBy(g, tag+"ownPorts", c, func(f Footprint, add func(OwnPort, omap.Name)) {
		each(f, func(f Footprint) {
			for _, p := range f.Own {
				add(OwnPort{f.Host, p}, omap.Name(f.Host))
			}
		})
	})
	t.Names = DefineNames(g, tag+"domains", c)
	t.Lost = query.GroupBy(g, tag+"lostDeclarations", c, func(f Footprint, add func(omap.Name, omap.Name)) {
		for _, ns := range f.Others {
			add(omap.Name(ns), omap.Name(f.Host))
			if long, ok := mesh.LongHost(f.Host, domain); ok {
				add(omap.Name(ns), omap.Name(long))
			}
		}
		if len(f.Others) > 0 {
			add("", omap.Name(f.Host))
		}
	})
	return t
}

// Domain is a name or address, as requests on a port have it for their host.
type Domain struct {
	Name string
	Port uint32
}

// Compare orders by name, then port.
func (d Domain) Compare(o Domain) int {
	return cmp.Or(strings.Compare(d.Name, o.Name), cmp.Compare(d.Port, o.Port))
}

// AppendTo appends an unambiguous form.
func (d Domain) AppendTo(b []byte) []byte {
	return strconv.AppendUint(append(append(b, d.Name...), ' '), uint64(d.Port), 10)
}

// DefineNames groups footprints by the domains that several hosts may want: an address belongs to the oldest host that has
// it, and a host goes before the one of which its name is a short one. Other names belong to one host anyway, and have no
// group.
func DefineNames[C comparable](g *query.Graph, name string, c *query.Collection[C, Footprint]) *query.Groups[C, Domain, Claimant] {
	return query.GroupBy(g, name, c, func(f Footprint, add func(Domain, Claimant)) {
		short := mesh.LooksShort(f.Host)
		for _, p := range f.HTTP {
			if short {
				add(Domain{f.Host, p}, Claimant{Created: f.Created, Host: f.Host})
			}
			for _, v := range f.VIPs {
				add(Domain{v, p}, Claimant{Created: f.Created, Host: f.Host})
			}
		}
	})
}
