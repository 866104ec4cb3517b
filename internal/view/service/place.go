package service

import (
	"cmp"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/query"
)

// Terms are on what terms a host wants an address. The zero value: as its own port says.
type Terms struct {
	// As is what connections speak if that is not what the host's port says; else Auto.
	As mesh.Protocol
	// Given says that a listener of a Sidecar has the address, not the host; Bound that there is a socket.
	Given, Bound bool
}

func (t Terms) compare(o Terms) int {
	return cmp.Or(cmp.Compare(t.As, o.As), compareBools(t.Given, o.Given), compareBools(t.Bound, o.Bound))
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

// AppendTo appends an unambiguous form, which of the zero value is nothing.
func (t Terms) AppendTo(b []byte) []byte {
	if t == (Terms{}) {
		return b
	}
	kind := byte(1)
	if t.Given {
		kind |= 2
	}
	if t.Bound {
		kind |= 4
	}
	return append(b, 0, kind, byte(t.As))
}

// Connections are those to an address that a host wants.
type Connections struct {
	Address
	Terms
}

// local is the address where nothing redirects: the loopback address, unless a listener says otherwise.
func (c Connections) local() Address {
	if c.Given && c.IP != mesh.Loopback {
		return c.Address
	}
	return Address{Port: c.Port}
}

// Requests are those to an address that a host wants which are told by their Host.
type Requests struct {
	Connections
	Dynamic bool // the proxy resolves the host of each request
	Web     bool // the port is declared gRPC-Web
}

// listen adds who wants which address of all but the ports that HTTP hosts share.
func (f Footprint) listen(add func(Address, Claimant), at func(Connections) Address) {
	for _, p := range f.Dynamic {
		add(Address{Port: p}, Claimant{Created: DynamicHTTP})
	}
	for _, p := range f.Web {
		add(Address{Port: p}, Claimant{Created: WebHTTP})
	}
	for _, c := range f.Requests {
		add(at(c.Connections), Claimant{Terms: c.Terms})
		if c.Dynamic {
			add(at(c.Connections), Claimant{Created: DynamicHTTP})
		}
		if c.Web {
			add(at(c.Connections), Claimant{Created: WebHTTP})
		}
	}
	for _, c := range f.TCP {
		add(at(c), Claimant{f.Created, f.Host, c.Terms})
	}
}

// Place is where a port of a service can be reached. The zero value is at the service's own addresses, or at any if it has
// none.
type Place struct {
	IP    string
	Bound bool // there is a socket
	// Protocol is what is spoken there if Declared; else what the service's port speaks.
	Protocol mesh.Protocol
	Declared bool
	// NotShared says that the wildcard address of the port is others', NotHTTP that the routes of the port are.
	NotShared, NotHTTP bool
}

// speaks is what is spoken with a port there. Who does not speak HTTP is not made to.
func (at Place) speaks(p mesh.Port) mesh.Protocol {
	if at.Declared && (!at.Protocol.IsHTTP() || p.Protocol.Sniffed()) {
		return at.Protocol
	}
	return p.Protocol
}

// connections are those of a port to an IP, on the place's terms.
func (at Place) connections(ip string, p mesh.Port) Connections {
	c := Connections{Address{ip, p.Number}, Terms{Given: at.IP != "", Bound: at.Bound}}
	if as := at.speaks(p); as != p.Protocol {
		c.As = as
	}
	return c
}

// Everywhere says that ports can be reached wherever their services are.
func Everywhere(string, uint32) []Place { return []Place{{}} }

func (q *Queries) footprint(r *query.Reader, s *Service, places func(namespace string, port uint32) []Place) Footprint {
	f := Footprint{Host: s.Host, Created: s.Created, Others: s.Others}
	own := ownAddresses{headless: q.headless(r, s)}
	own.singles, own.blocks = addresses(s)
	for _, p := range s.Ports {
		if p.Protocol == mesh.UDP {
			continue
		}
		if own.headless {
			own.endpoints = q.endpointAddresses(r, s, p.Number)
		}
		for _, at := range places(s.Namespace, p.Number) {
			switch {
			case at.IP != "":
				f.takeAt(p, at, s.Resolution == mesh.DynamicDNS)
			case at.speaks(p).IsHTTP():
				f.takeHTTP(p, at, s.Resolution == mesh.DynamicDNS)
			default:
				f.takeTCP(p, at, own)
			}
		}
	}
	if len(f.HTTP) > 0 {
		f.VIPs = own.singles
	}
	return f
}

// ownAddresses are the addresses of a service.
type ownAddresses struct {
	singles, endpoints []string
	blocks, headless   bool
}

// takeAt takes an address that is not the service's own.
func (f *Footprint) takeAt(p mesh.Port, at Place, dynamic bool) {
	c, protocol := at.connections(at.IP, p), at.speaks(p)
	http := protocol.IsHTTP()
	if http || protocol.Sniffed() {
		f.HTTP = union(f.HTTP, []uint32{p.Number})
		f.Requests = append(f.Requests, Requests{Connections{c.Address, Terms{Given: true, Bound: at.Bound}}, http && dynamic, protocol == mesh.GRPCWeb})
	}
	if !http {
		f.TCP = append(f.TCP, c)
	}
}

// takeHTTP takes a port among the hosts that share it.
func (f *Footprint) takeHTTP(p mesh.Port, at Place, dynamic bool) {
	if at.NotShared {
		return
	}
	f.takeRoutes(p, at)
	f.Shared = union(f.Shared, []uint32{p.Number})
	if dynamic {
		f.Dynamic = union(f.Dynamic, []uint32{p.Number})
	}
	if at.speaks(p) == mesh.GRPCWeb {
		f.Web = union(f.Web, []uint32{p.Number})
	}
}

func (f *Footprint) takeRoutes(p mesh.Port, at Place) {
	if at.NotHTTP {
		f.Unnamed = union(f.Unnamed, []uint32{p.Number})
		return
	}
	f.HTTP = union(f.HTTP, []uint32{p.Number})
}

// takeTCP takes the addresses of a port that is not HTTP for certain.
func (f *Footprint) takeTCP(p mesh.Port, at Place, own ownAddresses) {
	list, protocol := own.singles, at.speaks(p)
	if own.headless && !protocol.IsTLS() {
		list = own.endpoints
	}
	for _, ip := range list {
		f.TCP = append(f.TCP, at.connections(ip, p))
	}
	// A block of addresses is matched at the wildcard address.
	anywhere := !at.NotShared && (own.blocks || len(own.singles) == 0 && (!own.headless || protocol.IsTLS()))
	if anywhere {
		f.TCP = append(f.TCP, at.connections("", p))
	}
	if !protocol.Sniffed() {
		return
	}
	if anywhere || len(list) > 0 {
		f.takeRoutes(p, at)
	}
	if anywhere {
		f.Shared = union(f.Shared, []uint32{p.Number})
	}
	if len(list) > 0 {
		f.Own = union(f.Own, []uint32{p.Number})
	}
}
