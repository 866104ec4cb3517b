package rules

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// gateway checks the name of a gateway, "name" or "namespace/name", and reports whether it is "mesh", which means sidecars.
func (c *checker) gateway(p *document.Path, name string) (sidecars bool) {
	if name == mesh.Gateway {
		return true
	}
	namespace, short, ok := strings.Cut(name, "/")
	if !ok {
		if c.Rule(p, syntax.FQDN(name)) && strings.Contains(name, ".") {
			c.Warn(p, "%s: the dotted form is outdated; write namespace/name", document.Quote(name))
		}
		return false
	}
	if c.Rule(p, syntax.Name(namespace)) {
		c.Rule(p, syntax.Name(short))
	}
	return false
}

func (c *checker) virtualService(p *document.Path, vs *networking.VirtualService) {
	sidecars := len(vs.Gateways) == 0
	if !sidecars {
		sidecars = c.gateways(p.Field("gateways"), vs.Gateways)
	}
	c.ExportTo(p.Field("exportTo"), vs.ExportTo, false)
	if len(vs.Http)+len(vs.Tls)+len(vs.Tcp) == 0 {
		c.Fail(p, "has no routes; give it http, tls or tcp")
	}
	delegate := len(vs.Hosts) == 0
	if delegate {
		c.leaf(p, vs)
	} else {
		c.virtualHosts(p.Field("hosts"), vs, sidecars)
	}
	// Matches can restrict a rule to gateways. Only gateways have the claims of a token.
	for i, route := range vs.Http {
		at := p.Field("http").At(i)
		c.httpRoute(at, route, delegate)
		if sidecars && !delegate {
			c.claimsAtGatewaysOnly(at, route)
		}
	}
	for i, route := range vs.Tls {
		c.tlsRoute(p.Field("tls").At(i), route, vs)
	}
	for i, route := range vs.Tcp {
		c.tcpRoute(p.Field("tcp").At(i), route)
	}
	c.unreachable(p.Field("http"), vs.Http)
	c.unreachableTLS(p.Field("tls"), vs.Tls)
	c.unreachableTCP(p.Field("tcp"), vs.Tcp)
}

// leaf checks a VirtualService without hosts, to which others delegate.
func (c *checker) leaf(p *document.Path, vs *networking.VirtualService) {
	if len(vs.Gateways) > 0 {
		c.Fail(p.Field("gateways"), "a VirtualService without hosts is a delegate and takes its gateways from its root; add hosts or remove gateways")
	}
	if len(vs.Tls) > 0 {
		c.Fail(p.Field("tls"), "a VirtualService without hosts is a delegate, and only http can be delegated; add hosts or remove tls")
	}
	if len(vs.Tcp) > 0 {
		c.Fail(p.Field("tcp"), "a VirtualService without hosts is a delegate, and only http can be delegated; add hosts or remove tcp")
	}
}

func (c *checker) virtualHosts(p *document.Path, vs *networking.VirtualService, sidecars bool) {
	hosts, generated := vs.Hosts, !sidecars && matchesServerNames(vs)
	for i, h := range hosts {
		at := p.At(i)
		switch {
		case syntax.IsIP(h):
		case generated && syntax.IsGeneratedSNI(h):
		case h == "*" && sidecars:
			c.Fail(at, "the bare wildcard is for gateways only; name the hosts, or gateways other than mesh")
		default:
			c.Rule(at, syntax.Wildcard(h))
		}
		for j, other := range hosts[:i] {
			if syntax.HostsOverlap(h, other) {
				c.Fail(at, "%s and hosts[%d] %s are the same hosts; keep one of them", document.Quote(h), j, document.Quote(other))
				break
			}
		}
	}
}

// matchesServerNames reports whether a VirtualService has a route for server names of TLS. Only such a route can have names that sidecars generate.
func matchesServerNames(vs *networking.VirtualService) bool {
	for _, route := range vs.Tls {
		for _, m := range route.GetMatch() {
			if len(m.GetSniHosts()) > 0 {
				return true
			}
		}
	}
	return false
}

// destination checks a destination.
func (c *checker) destination(p *document.Path, d *networking.Destination) {
	if d == nil {
		c.Fail(p, "a destination is needed")
		return
	}
	at := p.Field("host")
	if d.Host == "*" {
		c.Fail(at, "the bare wildcard is no destination; name a host")
	} else {
		c.Rule(at, syntax.Wildcard(d.Host))
	}
	if d.Subset != "" {
		c.Rule(p.Field("subset"), syntax.Name(d.Subset))
	}
	if d.Port != nil {
		c.Port(p.Field("port").Field("number"), d.Port.Number)
	}
}

// weights checks the weights of destinations. A single destination gets all traffic, whatever its weight.
func (c *checker) weights(p *document.Path, n int, weight func(int) int32) {
	total := int64(0)
	for i := range n {
		total += max(0, int64(weight(i)))
	}
	if n > 1 && total == 0 {
		c.Fail(p, "the weights add up to 0, so no destination gets anything; give one of them a weight")
	}
	if total > 1<<32-1 {
		c.Fail(p, "the weights add up to %d, the limit is %d", total, uint32(1<<32-1))
	}
}

func (c *checker) tlsRoute(p *document.Path, r *networking.TLSRoute, vs *networking.VirtualService) {
	if r == nil {
		c.Fail(p, "a route must not be null")
		return
	}
	if len(r.Match) == 0 {
		c.Fail(p.Field("match"), "a TLS route needs a match with server names (sniHosts)")
	}
	for i, m := range r.Match {
		at := p.Field("match").At(i)
		if m == nil {
			c.Fail(at, "a match must not be null")
			continue
		}
		if len(m.SniHosts) == 0 {
			c.Fail(at.Field("sniHosts"), "a TLS match needs server names")
		}
		for j, sni := range m.SniHosts {
			c.sni(at.Field("sniHosts").At(j), sni, vs)
		}
		c.match4(at, m.DestinationSubnets, "", m.Gateways, m.SourceNamespace)
	}
	c.route4(p, r.Route)
}

// sni checks a server name: it must be one of the VirtualService's hosts.
func (c *checker) sni(p *document.Path, sni string, vs *networking.VirtualService) {
	if syntax.IsIP(sni) {
		c.Warn(p, "%s is an IP address, which clients do not send as a server name; match destinationSubnets", document.Quote(sni))
		return
	}
	gatewaysOnly := len(vs.Gateways) > 0
	for _, g := range vs.Gateways {
		gatewaysOnly = gatewaysOnly && g != mesh.Gateway
	}
	if !(gatewaysOnly && syntax.IsGeneratedSNI(sni)) && !c.Rule(p, syntax.Wildcard(sni)) {
		return
	}
	if mesh.IsPartialWildcard(sni) {
		c.Warn(p, "%s has no effect: in server names a wildcard replaces whole labels; write *.example.com", document.Quote(sni))
	}
	for _, h := range vs.Hosts {
		if syntax.Covers(strings.ToLower(h), strings.ToLower(sni)) {
			return
		}
	}
	if len(vs.Hosts) > 0 {
		c.Fail(p, "%s is none of spec.hosts; add it there", document.Quote(sni))
	}
}

func (c *checker) tcpRoute(p *document.Path, r *networking.TCPRoute) {
	if r == nil {
		c.Fail(p, "a route must not be null")
		return
	}
	for i, m := range r.Match {
		at := p.Field("match").At(i)
		if m == nil {
			c.Fail(at, "a match must not be null")
			continue
		}
		c.match4(at, m.DestinationSubnets, m.SourceSubnet, m.Gateways, m.SourceNamespace)
	}
	c.route4(p, r.Route)
}

// match4 checks the fields that matches of TLS and TCP routes have in common.
func (c *checker) match4(p *document.Path, subnets []string, source string, gateways []string, namespace string) {
	for i, s := range subnets {
		c.Rule(p.Field("destinationSubnets").At(i), syntax.Subnet(s))
	}
	if source != "" {
		c.Rule(p.Field("sourceSubnet"), syntax.Subnet(source))
	}
	c.gateways(p.Field("gateways"), gateways)
	if namespace != "" {
		c.Rule(p.Field("sourceNamespace"), syntax.Name(namespace))
	}
}

// route4 checks the destinations of TLS and TCP routes.
func (c *checker) route4(p *document.Path, route []*networking.RouteDestination) {
	at := p.Field("route")
	if len(route) == 0 {
		c.Fail(at, "a route needs a destination")
	}
	for i, d := range route {
		if d == nil {
			c.Fail(at.At(i), "a destination must not be null")
			continue
		}
		c.destination(at.At(i).Field("destination"), d.Destination)
	}
	c.weights(at, len(route), func(i int) int32 { return route[i].GetWeight() })
}
