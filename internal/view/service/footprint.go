package service

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// RoutesOnlyPort is where the routes of a host without a service apply.
const RoutesOnlyPort = 80

// Footprint is what a host takes up on a client's side: ports, addresses. Who else wants the same is found by grouping
// the footprints of all hosts.
type Footprint struct {
	Host    string
	Created int64
	// HTTP are the ports where requests for it are told by their Host.
	HTTP []uint32
	// TCP are the addresses where connections to it are told by their address; an empty IP is any.
	TCP []Address
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

// OutputName is the host.
func (f Footprint) OutputName() string { return f.Host }

// Size is 0.
func (Footprint) Size() int { return 0 }

// ContentHash covers all of it.
func (f Footprint) ContentHash() omap.Hash { return omap.Sum(f.append(nil)) }

func (f Footprint) append(b []byte) []byte {
	b = append(append(b, f.Host...), 0)
	b = strconv.AppendInt(b, f.Created, 10)
	for _, p := range f.HTTP {
		b = Number(p).AppendTo(append(b, 1))
	}
	for _, a := range f.TCP {
		b = a.AppendTo(append(b, 2))
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
	return f.Host == o.Host && f.Created == o.Created && slices.Equal(f.HTTP, o.HTTP) && slices.Equal(f.TCP, o.TCP) &&
		slices.Equal(f.VIPs, o.VIPs) && slices.Equal(f.Others, o.Others) &&
		(f.Gone == nil) == (o.Gone == nil) && (f.Gone == nil || f.Gone.equal(*o.Gone))
}

func equalFootprints(a, b []Footprint) bool { return slices.EqualFunc(a, b, Footprint.equal) }

// EqualFootprints reports whether two lists are the same.
func EqualFootprints(a, b []Footprint) bool { return equalFootprints(a, b) }

// Footprint is what a view's host takes up.
func (q *Queries) Footprint(r *query.Reader, v View) (Footprint, bool) {
	if s, ok := q.Service.Get(r, v); ok {
		return s.footprint(), true
	}
	if q.routesOnly(r, v) {
		f := Footprint{Host: v.Host, HTTP: []uint32{RoutesOnlyPort}}
		if a, err := netip.ParseAddr(v.Host); err == nil && a.Zone() == "" {
			// Rules for it by name go before a service that has it for an address.
			f.VIPs, f.Created = []string{a.Unmap().String()}, math.MinInt64
		}
		return f, true
	}
	return Footprint{}, false
}

// routesOnly reports whether a host has routes and no service: then the routes are all there is to it. A pattern that
// covers services has given them its routes already.
func (q *Queries) routesOnly(r *query.Reader, v View) bool {
	routes := false
	for c := range q.tables.ByHost.Group(r, v.Host).All() {
		routes = routes || c.Kind == state.RouteClaim && c.VisibleTo(v.Layer)
	}
	if !routes || !mesh.IsWildcard(v.Host) {
		return routes
	}
	return q.tables.Hosts.Group(r, state.HostGroup{By: state.ServiceUnder, Of: v.Host}).Len() == 0
}

func (s *Service) footprint() Footprint {
	f := Footprint{Host: s.Host, Created: s.Created, Others: s.Others}
	singles, blocks := addresses(s)
	for _, p := range s.Ports {
		http := p.Protocol.IsHTTP() || p.Protocol.Sniffed()
		if http {
			f.HTTP = append(f.HTTP, p.Number)
		}
		if http && !p.Protocol.Sniffed() || p.Protocol == mesh.UDP {
			continue
		}
		for _, a := range singles {
			f.TCP = append(f.TCP, Address{a, p.Number})
		}
		if blocks || len(singles) == 0 { // a block of addresses is matched at the wildcard address
			f.TCP = append(f.TCP, Address{Port: p.Number})
		}
	}
	if len(f.HTTP) > 0 {
		f.VIPs = singles
	}
	return f
}

// addresses are the single addresses of a service in one spelling, each once, and whether it has blocks of them.
func addresses(s *Service) (singles []string, blocks bool) {
	for i := -1; i < len(s.Addresses); i++ {
		text := s.Host // a host may be an address
		if i >= 0 {
			text = s.Addresses[i]
		}
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			singles = union(singles, []string{a.Unmap().String()})
		}
		blocks = blocks || i >= 0 && strings.Contains(text, "/")
	}
	return singles, blocks
}

// Claimant wants an address. The oldest gets it.
type Claimant struct {
	Created int64
	Host    string // empty for all HTTP hosts together
}

// Compare orders by age, then host.
func (c Claimant) Compare(o Claimant) int {
	switch {
	case c.Created < o.Created:
		return -1
	case c.Created > o.Created:
		return 1
	}
	return strings.Compare(c.Host, o.Host)
}

// AppendTo appends an unambiguous form.
func (c Claimant) AppendTo(b []byte) []byte {
	return append(strconv.AppendInt(b, c.Created, 10), " "+c.Host...)
}

// Taken groups footprints by what they take up. In an overlay, what a changed host no longer takes up is in the groups
// under the host's name with an age of never, so that the overlay looks at it.
type Taken[C comparable] struct {
	// HTTP: port -> hosts told by name there.
	HTTP *query.Groups[C, Number, omap.Name]
	// Listen: address -> who wants it, where connections keep the address they were dialled at.
	Listen *query.Groups[C, Address, Claimant]
	// Local: port (with an empty IP) -> who wants it, where every listener binds the loopback address.
	Local *query.Groups[C, Address, Claimant]
	// Names: address -> hosts that want it as a name on an HTTP port.
	Names *query.Groups[C, Address, Claimant]
	// Lost: namespace -> hosts it declares in vain.
	Lost *query.Groups[C, omap.Name, omap.Name]
}

// Never is the age of who only used to want an address.
const Never = int64(1)<<62 - 1

// DefineTaken adds the groups of a collection of footprints; tag tells their names apart.
func DefineTaken[C comparable](g *query.Graph, tag string, c *query.Collection[C, Footprint]) *Taken[C] {
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
		})
	})
	t.Listen = query.GroupBy(g, tag+"listenAddresses", c, func(f Footprint, add func(Address, Claimant)) {
		each(f, func(f Footprint) {
			for _, p := range f.HTTP {
				add(Address{Port: p}, Claimant{})
			}
			for _, a := range f.TCP {
				add(a, Claimant{f.Created, f.Host})
			}
		})
	})
	t.Local = query.GroupBy(g, tag+"localPorts", c, func(f Footprint, add func(Address, Claimant)) {
		each(f, func(f Footprint) {
			for _, p := range f.HTTP {
				add(Address{Port: p}, Claimant{})
			}
			for _, a := range f.TCP {
				add(Address{Port: a.Port}, Claimant{f.Created, f.Host})
			}
		})
	})
	t.Names = query.GroupBy(g, tag+"addressNames", c, func(f Footprint, add func(Address, Claimant)) {
		for _, p := range f.HTTP {
			for _, v := range f.VIPs {
				add(Address{v, p}, Claimant{f.Created, f.Host})
			}
		}
	})
	t.Lost = query.GroupBy(g, tag+"lostDeclarations", c, func(f Footprint, add func(omap.Name, omap.Name)) {
		for _, ns := range f.Others {
			add(omap.Name(ns), omap.Name(f.Host))
		}
	})
	return t
}
