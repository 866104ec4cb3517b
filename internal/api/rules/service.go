package rules

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// protocols are the valid protocols of ports, in upper or lower case.
const protocols = " HTTP HTTP2 GRPC GRPC-WEB HTTP_PROXY HTTPS TCP TLS UDP MONGO MYSQL REDIS "

func (c *checker) protocol(p *document.Path, name string) {
	if name != "" && (strings.Contains(name, " ") || !strings.Contains(protocols, " "+strings.ToUpper(name)+" ")) {
		c.Fail(p, "%s is not a protocol; use one of %s", document.Quote(name), strings.ReplaceAll(strings.TrimSpace(protocols), " ", ", "))
	}
}

func (c *checker) serviceEntry(p *document.Path, s *networking.ServiceEntry, about About) {
	if len(s.Hosts) == 0 {
		c.Fail(p.Field("hosts"), "a service needs a host at least")
	}
	for i, h := range s.Hosts {
		at := p.Field("hosts").At(i)
		if h == "*" {
			c.Fail(at, "the bare wildcard is no service; name a host or a domain like *.example.com")
		} else {
			c.Rule(at, syntax.Wildcard(h))
			c.partial(at, h, s.Resolution)
		}
		for j, other := range s.Hosts[:i] {
			if strings.EqualFold(h, other) {
				c.Warn(at, "hosts[%d] is the same", j)
			}
		}
	}
	for i, a := range s.Addresses {
		c.Rule(p.Field("addresses").At(i), syntax.Subnet(a))
	}
	c.servicePorts(p.Field("ports"), s.Ports)
	c.ExportTo(p.Field("exportTo"), s.ExportTo, true)
	if s.WorkloadSelector != nil && len(s.Endpoints) > 0 {
		c.Fail(p.Field("workloadSelector"), "excludes endpoints; keep one of them")
	}
	for i, e := range s.Endpoints {
		c.endpoint(p.Field("endpoints").At(i), e, s)
	}
	c.resolution(p, s)
	c.severalHosts(p, s)
	c.waypoint(p, s, about)
	c.everyAddress(p, s, about)
	if about.Labels[AutoAllocate] == "false" && len(s.Addresses) == 0 &&
		s.Resolution != networking.ServiceEntry_NONE {
		for i, port := range s.Ports {
			if isOpaque(port.GetProtocol()) {
				c.Warn(p.Field("addresses"), "ports[%d] can be distinguished from others by address only, and the label "+
					"networking.istio.io/enable-autoallocate-ip switches automatic addresses off; name an address", i)
				break
			}
		}
	}
}

// AutoAllocate is the label that decides whether a ServiceEntry uses the addresses that are allocated to it.
const AutoAllocate = "networking.istio.io/enable-autoallocate-ip"

// everyAddress warns of ports without an address, which take all connections to their number.
func (c *checker) everyAddress(p *document.Path, s *networking.ServiceEntry, about About) {
	if len(s.Addresses) > 0 || about.Allocated {
		return
	}
	if about.Labels[AutoAllocate] == "false" && s.Resolution != networking.ServiceEntry_NONE {
		return // serviceEntry reports it
	}
	for i, port := range s.Ports {
		detected := port.GetProtocol() == "" && s.Resolution != networking.ServiceEntry_NONE // addresses are usually allocated
		if isOpaque(port.GetProtocol()) && !detected {
			c.Warn(p.Field("ports").At(i).Field("protocol"), "without addresses the service takes all connections to port %d, whatever their address; name an address, or declare TLS if clients name the host in it", port.Number)
		}
	}
}

// isOpaque reports whether connections of a protocol do not name the host that they are for.
func isOpaque(protocol string) bool {
	switch strings.ToUpper(protocol) {
	case "", "TCP", "MONGO", "MYSQL", "REDIS":
		return true
	}
	return false
}

func (c *checker) servicePorts(p *document.Path, ports []*networking.ServicePort) {
	numbers, names := map[uint32]bool{}, map[string]bool{}
	for i, port := range ports {
		at := p.At(i)
		if port == nil {
			c.Fail(at, "a port must not be null")
			continue
		}
		c.Port(at.Field("number"), port.Number)
		if numbers[port.Number] {
			c.Fail(at.Field("number"), "%d is given to two ports", port.Number)
		}
		numbers[port.Number] = true
		if port.Name == "" {
			c.Fail(at.Field("name"), "a port needs a name")
		} else {
			c.Rule(at.Field("name"), syntax.Name(port.Name))
			if names[port.Name] {
				c.Fail(at.Field("name"), "%s names two ports", document.Quote(port.Name))
			}
		}
		names[port.Name] = true
		c.protocol(at.Field("protocol"), port.Protocol)
		if strings.EqualFold(port.Protocol, "UDP") {
			c.Warn(at.Field("protocol"), "proxies do not carry UDP: the port does nothing, and datagrams go where they went without it")
		}
	}
}

func (c *checker) distribution(text string) {
	if _, known := mesh.ParseNearness(text); text != "" && !known {
		at := (*document.Path)(nil).Field("metadata").Field("annotations").Key("networking.istio.io/traffic-distribution")
		c.Warn(at, "%s is none of PreferSameZone (or PreferClose), PreferSameNode and Any: ignored", document.Quote(text))
	}
}

// endpoint checks an endpoint that a service lists.
func (c *checker) endpoint(p *document.Path, e *networking.WorkloadEntry, s *networking.ServiceEntry) {
	if e == nil {
		c.Fail(p, "an endpoint must not be null")
		return
	}
	c.workloadEntry(p, e)
	at := p.Field("address")
	switch s.Resolution {
	case networking.ServiceEntry_STATIC:
		if e.Address != "" && !syntax.IsUnix(e.Address) && !syntax.IsIP(e.Address) {
			c.Fail(at, "%s: the endpoints of resolution STATIC are IP addresses or unix:// sockets; names need DNS", document.Quote(e.Address))
		}
		if syntax.IsUnix(e.Address) && len(s.Ports) != 1 {
			c.Fail(at, "a socket serves one port, and this service has %d", len(s.Ports))
		}
	case networking.ServiceEntry_DNS, networking.ServiceEntry_DNS_ROUND_ROBIN:
		if syntax.IsUnix(e.Address) {
			c.Fail(at, "sockets are not found by DNS; use resolution STATIC")
		} else if e.Address == "" && e.Network != "" { // workloadEntry refuses an endpoint without both
			c.Fail(at, "resolution %s needs the name or address of each endpoint", s.Resolution)
		}
	default:
		return // which have no endpoints
	}
	for _, name := range slices.Sorted(maps.Keys(e.Ports)) {
		known := false
		for _, port := range s.Ports {
			known = known || port.GetName() == name
		}
		if !known {
			c.Fail(p.Field("ports").Key(name), "the service has no port of this name")
		}
	}
}

// resolution checks the fields that each resolution requires or excludes.
func (c *checker) resolution(p *document.Path, s *networking.ServiceEntry) {
	endpoints := p.Field("endpoints")
	switch s.Resolution {
	case networking.ServiceEntry_NONE:
		if len(s.Endpoints) > 0 {
			c.Fail(endpoints, "resolution NONE sends traffic to where the application sent it; remove endpoints or use STATIC or DNS")
		}
		if s.WorkloadSelector != nil {
			c.Warn(p.Field("workloadSelector"), "has no effect with resolution NONE, which sends traffic to where the application sent it; use STATIC")
		}
		return
	case networking.ServiceEntry_STATIC:
		return
	case networking.ServiceEntry_DNS, networking.ServiceEntry_DNS_ROUND_ROBIN:
		if len(s.Endpoints) == 0 {
			for i, h := range s.Hosts {
				if strings.HasPrefix(h, "*") {
					c.Fail(p.Field("hosts").At(i), "%s cannot be asked of DNS; add endpoints or use DYNAMIC_DNS", document.Quote(h))
				}
			}
		}
		if s.Resolution == networking.ServiceEntry_DNS_ROUND_ROBIN && len(s.Endpoints) > 1 {
			c.Fail(endpoints, "resolution DNS_ROUND_ROBIN has one endpoint at most; use DNS")
		}
	case networking.ServiceEntry_DYNAMIC_DNS:
		if len(s.Endpoints) > 0 {
			c.Fail(endpoints, "resolution DYNAMIC_DNS asks for the host of each request; remove endpoints")
		}
		if s.WorkloadSelector != nil {
			c.Fail(p.Field("workloadSelector"), "resolution DYNAMIC_DNS asks for the host of each request; remove the selector")
		}
		c.dynamic(p, s)
	}
	for i, a := range s.Addresses {
		if strings.Contains(a, "/") {
			c.Fail(p.Field("addresses").At(i), "address blocks need resolution STATIC or NONE")
		}
	}
}

// dynamic checks a service whose host is found out per request.
func (c *checker) dynamic(p *document.Path, s *networking.ServiceEntry) {
	for i, h := range s.Hosts {
		if !strings.HasPrefix(h, "*") {
			c.Fail(p.Field("hosts").At(i), "%s is one host, and resolution DYNAMIC_DNS is for wildcards like *.example.com; use DNS", document.Quote(h))
		}
	}
	if len(s.Addresses) > 0 {
		c.Fail(p.Field("addresses"), "resolution DYNAMIC_DNS asks for the host of each request; remove addresses")
	}
	for i, port := range s.Ports {
		switch strings.ToUpper(port.GetProtocol()) {
		case "HTTP", "HTTP2", "GRPC", "TLS":
		default:
			c.Fail(p.Field("ports").At(i).Field("protocol"), "resolution DYNAMIC_DNS needs requests that name their host: declare HTTP, HTTP2, GRPC or TLS")
		}
	}
}

// waypoint refuses a service inside the mesh that is found out per request and leads through a waypoint.
func (c *checker) waypoint(p *document.Path, s *networking.ServiceEntry, about About) {
	const label = "istio.io/use-waypoint"
	name := about.Labels[label]
	if s.Resolution == networking.ServiceEntry_DYNAMIC_DNS && s.Location == networking.ServiceEntry_MESH_INTERNAL && name != "" && !strings.EqualFold(name, "none") {
		c.Fail(p.Field("location"), "a service with resolution DYNAMIC_DNS and the label %s must be MESH_EXTERNAL; change it, or remove the label", label)
	}
}

// partial warns of a wildcard that is not a whole part of a host name: no certificate has such a name.
func (c *checker) partial(p *document.Path, host string, resolution networking.ServiceEntry_Resolution) {
	if mesh.IsPartialWildcard(host) && resolution != networking.ServiceEntry_DYNAMIC_DNS {
		c.Warn(p, "%s: a wildcard for a part of a name matches no connection with TLS, and may match less than it seems; write *.example.com", document.Quote(host))
	}
}

// severalHosts checks the ports of a service with several hosts: each connection must name its host.
func (c *checker) severalHosts(p *document.Path, s *networking.ServiceEntry) {
	if len(s.Hosts) < 2 || s.Resolution == networking.ServiceEntry_NONE {
		return
	}
	shared := false
	for i, port := range s.Ports {
		at := p.Field("ports").At(i).Field("protocol")
		switch name := strings.ToUpper(port.GetProtocol()); {
		case !isHTTP(name) && name != "TLS" && name != "HTTPS":
			c.Fail(at, "the service has %d hosts, and connections to this port do not name theirs; declare HTTP, HTTPS, TLS or GRPC, or write a ServiceEntry for each host", len(s.Hosts))
		case !isHTTP(name):
			shared = true
		}
	}
	dns := s.Resolution == networking.ServiceEntry_DNS || s.Resolution == networking.ServiceEntry_DNS_ROUND_ROBIN
	if dns && shared && len(s.Addresses) > 0 {
		c.Warn(p.Field("addresses"), "the %d hosts share the addresses, so only the host that a connection names decides which service it reaches; write a ServiceEntry for each host", len(s.Hosts))
	}
}

// isHTTP reports whether a protocol, in upper case, is HTTP.
func isHTTP(protocol string) bool {
	switch protocol {
	case "HTTP", "HTTP2", "HTTP_PROXY", "GRPC", "GRPC-WEB":
		return true
	}
	return false
}

func (c *checker) workloadEntry(p *document.Path, w *networking.WorkloadEntry) {
	at := p.Field("address")
	switch {
	case w.Address == "" && w.Network == "":
		c.Fail(at, "a workload needs an address, or a network whose gateway leads to it")
	case w.Address == "":
		c.Warn(at, "without an address the workload is reached through the gateway of network %s only", document.Quote(w.Network))
	case syntax.IsUnix(w.Address):
		c.Rule(at, syntax.Unix(w.Address))
		if len(w.Ports) > 0 {
			c.Fail(p.Field("ports"), "a socket has no ports")
		}
	case !syntax.IsIP(w.Address):
		c.Rule(at, syntax.FQDN(w.Address))
	}
	if strings.Count(w.Locality, "/") > 2 {
		c.Warn(p.Field("locality"), "%s has more parts than region/zone/subzone", document.Quote(w.Locality))
	}
}
