package patch

import (
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// Place says where a message is sent.
type Place struct {
	// Context is the direction: SIDECAR_INBOUND, SIDECAR_OUTBOUND or GATEWAY.
	Context networking.EnvoyFilter_PatchContext
	// Hosts returns the hosts of the service behind an inbound cluster, which its name does not contain; nil if there are none.
	Hosts func(cluster string) []string
	// ServicePorts returns the ports of the Services in front of gateways that lead to a port of the gateways; empty if the numbers are the same.
	ServicePorts func(port uint32) []uint32
}

// hasPort reports whether a number in a match means a port of gateways: it is the number that clients connect to.
func (p Place) hasPort(port, number uint32) bool {
	if p.ServicePorts != nil {
		if list := p.ServicePorts(port); len(list) > 0 {
			return slices.Contains(list, number)
		}
	}
	return port == number
}

// The listeners that take redirected connections, for any port.
const (
	virtualInbound  = "virtualInbound"
	virtualOutbound = "virtualOutbound"
)

func isVirtual(listener string) bool {
	return listener == virtualInbound || listener == virtualOutbound
}

// selectsListener reports whether a patch is about a listener. The port of a virtual listener is the port of each of its filter chains,
// unless the patch is about the listener itself. Its listener filters act on connections to all ports, so that any chain counts for these.
func (p *Patch) selectsListener(l *listenerv3.Listener) bool {
	m := p.match.GetListener()
	if m.GetName() != "" && m.GetName() != l.GetName() {
		return false
	}
	if m.GetPortNumber() == 0 || l.GetAddress().GetSocketAddress().GetPortValue() == m.GetPortNumber() {
		return true
	}
	if p.ApplyTo == networking.EnvoyFilter_LISTENER_FILTER {
		return isVirtual(l.GetName()) && slices.ContainsFunc(l.GetFilterChains(), func(c *listenerv3.FilterChain) bool {
			return c.GetFilterChainMatch().GetDestinationPort().GetValue() == m.GetPortNumber()
		})
	}
	return isVirtual(l.GetName()) && p.ApplyTo != networking.EnvoyFilter_LISTENER
}

// selectsChain reports whether a patch is about a filter chain of a listener that it is about.
func (p *Patch) selectsChain(l *listenerv3.Listener, c *listenerv3.FilterChain) bool {
	m, of := p.match.GetListener(), c.GetFilterChainMatch()
	port := of.GetDestinationPort().GetValue()
	if n := m.GetPortNumber(); n != 0 && isVirtual(l.GetName()) && n != port {
		return false
	}
	f := m.GetFilterChain()
	switch {
	case f == nil:
		return true
	case f.GetName() != "" && f.GetName() != c.GetName(),
		f.GetSni() != "" && !slices.Contains(of.GetServerNames(), f.GetSni()),
		f.GetTransportProtocol() != "" && f.GetTransportProtocol() != of.GetTransportProtocol(),
		f.GetDestinationPort() != 0 && f.GetDestinationPort() != port,
		f.GetTransportSocket() != "" && f.GetTransportSocket() != socketOf(c):
		return false
	}
	for protocol := range strings.SplitSeq(f.GetApplicationProtocols(), ",") {
		if protocol = strings.TrimSpace(protocol); protocol != "" && !slices.Contains(of.GetApplicationProtocols(), protocol) {
			return false
		}
	}
	return true
}

// socketOf is the name of the transport socket of a filter chain. Envoy reads plain bytes if it has none.
func socketOf(c *listenerv3.FilterChain) string {
	if name := c.GetTransportSocket().GetName(); name != "" {
		return name
	}
	return "envoy.transport_sockets.raw_buffer"
}

// current is the present name of a filter that a patch names as before version 3 of Envoy's API.
func current(name string) string {
	switch name {
	case "envoy.http_connection_manager", "envoy.tcp_proxy", "envoy.mongo_proxy", "envoy.redis_proxy", "envoy.ratelimit", "envoy.client_ssl_auth", "envoy.echo":
		return "envoy.filters.network." + strings.TrimPrefix(name, "envoy.")
	case "envoy.listener.http_inspector", "envoy.listener.original_dst", "envoy.listener.original_src", "envoy.listener.proxy_protocol", "envoy.listener.tls_inspector":
		return "envoy.filters.listener." + strings.TrimPrefix(name, "envoy.listener.")
	case "envoy.buffer", "envoy.cors", "envoy.csrf", "envoy.ext_authz", "envoy.fault", "envoy.grpc_http1_bridge", "envoy.grpc_json_transcoder",
		"envoy.grpc_web", "envoy.gzip", "envoy.health_check", "envoy.ip_tagging", "envoy.lua", "envoy.router", "envoy.squash":
		return "envoy.filters.http." + strings.TrimPrefix(name, "envoy.")
	case "envoy.rate_limit":
		return "envoy.filters.http.ratelimit"
	}
	return name
}

// networkFilter is the filter of a chain that a patch names; empty if it names none.
func (p *Patch) networkFilter() string {
	return current(p.match.GetListener().GetFilterChain().GetFilter().GetName())
}

// httpFilter is the filter for requests that a patch names; empty if it names none.
func (p *Patch) httpFilter() string {
	return current(p.match.GetListener().GetFilterChain().GetFilter().GetSubFilter().GetName())
}

// selectsConfiguration reports whether a patch is about a route configuration.
func (p *Patch) selectsConfiguration(at Place, name string) bool {
	m := p.match.GetRouteConfiguration()
	if m == nil {
		return true
	}
	if m.GetName() != "" && m.GetName() != name {
		return false
	}
	if at.Context != networking.EnvoyFilter_GATEWAY {
		return m.GetPortNumber() == 0 || m.GetPortNumber() == portOfRoutes(name)
	}
	of := gatewayRoutesOf(name)
	return (m.GetPortNumber() == 0 || at.hasPort(of.port, m.GetPortNumber())) &&
		(m.GetPortName() == "" || m.GetPortName() == of.portName) && (m.GetGateway() == "" || m.GetGateway() == of.gateway)
}

// portOfRoutes is the port of a route configuration of sidecars; 0 if it has none.
func portOfRoutes(name string) uint32 {
	text := name
	if rest, inbound := strings.CutPrefix(name, "inbound|"); inbound {
		text, _, _ = strings.Cut(rest, "|")
	} else if at := strings.LastIndexByte(name, ':'); at >= 0 { // of a host with addresses of its own
		text = name[at+1:]
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// gatewayRoutes are the parts of the name of a route configuration of gateways. One for HTTP, or for hosts with certificates on demand, has only the port.
type gatewayRoutes struct {
	port              uint32
	portName, gateway string
}

func gatewayRoutesOf(name string) (of gatewayRoutes) {
	parts := strings.Split(name, ".")
	if len(parts) < 2 || parts[0] != "http" && parts[0] != "https" && parts[0] != "shared" {
		return of
	}
	if n, err := strconv.ParseUint(parts[1], 10, 16); err == nil {
		of.port = uint32(n)
	}
	if parts[0] == "https" && len(parts) >= 5 {
		of.portName, of.gateway = parts[2], parts[4]+"/"+parts[3]
	}
	return of
}

// selectsHost reports whether a patch is about a virtual host of a route configuration that it is about.
func (p *Patch) selectsHost(v *routev3.VirtualHost) bool {
	m := p.match.GetRouteConfiguration().GetVhost()
	return (m.GetName() == "" || m.GetName() == v.GetName()) && (m.GetDomainName() == "" || slices.Contains(v.GetDomains(), m.GetDomainName()))
}

// namesRoute reports whether a patch selects single routes.
func (p *Patch) namesRoute() bool {
	return p.match.GetRouteConfiguration().GetVhost().GetRoute() != nil
}

// selectsRoute reports whether a patch is about a route of a virtual host that it is about.
func (p *Patch) selectsRoute(r *routev3.Route) bool {
	m := p.match.GetRouteConfiguration().GetVhost().GetRoute()
	if m == nil {
		return true
	}
	if m.GetName() != "" && m.GetName() != r.GetName() {
		return false
	}
	switch m.GetAction() {
	case networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ROUTE:
		return r.GetRoute() != nil
	case networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_REDIRECT:
		return r.GetRedirect() != nil
	case networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_DIRECT_RESPONSE:
		return r.GetDirectResponse() != nil
	}
	return true
}

// selectsCluster reports whether a patch is about a cluster.
func (p *Patch) selectsCluster(at Place, c *clusterv3.Cluster) bool {
	m := p.match.GetCluster()
	if m == nil {
		return true
	}
	if m.GetName() != "" {
		return m.GetName() == c.GetName()
	}
	of := clusterOf(c.GetName())
	hosts := []string{of.host}
	if of.way == "inbound" && at.Hosts != nil {
		hosts = at.Hosts(c.GetName())
	}
	return (m.GetSubset() == "" || m.GetSubset() == of.subset) && (m.GetService() == "" || slices.Contains(hosts, m.GetService())) &&
		(m.GetPortNumber() == 0 || m.GetPortNumber() == of.port)
}

// clusterName are the parts of the name of a cluster for a port of a service.
type clusterName struct {
	way, subset, host string
	port              uint32
}

func clusterOf(name string) (of clusterName) {
	parts := strings.Split(name, "|")
	if sni := strings.Split(name, "_."); len(sni) == 4 { // a gateway that forwards TLS of the mesh
		parts = sni
	}
	if len(parts) != 4 {
		return of
	}
	n, err := strconv.ParseUint(parts[1], 10, 16)
	if err != nil {
		return of
	}
	return clusterName{parts[0], parts[2], parts[3], uint32(n)}
}

// Selection is what a patch selects resources by, as far as that is exact: by their name, or by what else is in the name. It is empty if the
// patch may be about any resource.
type Selection struct {
	Name string
	// Handle is the host of clusters, the port of listeners, or the port of route configurations.
	Handle string
}

// Selects returns what the patch selects resources by.
func (p *Patch) Selects() (s Selection) {
	switch m := p.match.GetObjectTypes().(type) {
	case *networking.EnvoyFilter_EnvoyConfigObjectMatch_Cluster:
		s = Selection{m.Cluster.GetName(), m.Cluster.GetService()}
	case *networking.EnvoyFilter_EnvoyConfigObjectMatch_Listener:
		s = Selection{m.Listener.GetName(), portText(m.Listener.GetPortNumber())}
	case *networking.EnvoyFilter_EnvoyConfigObjectMatch_RouteConfiguration:
		s = Selection{m.RouteConfiguration.GetName(), portText(m.RouteConfiguration.GetPortNumber())}
	}
	return s
}

func portText(port uint32) string {
	if port == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(port), 10)
}

// HostOfCluster is the host in the name of a cluster; empty if it has none.
func HostOfCluster(name string) string { return clusterOf(name).host }

// PortTextOfRoutes is the port in the name of a route configuration; empty if it has none.
func PortTextOfRoutes(name string) string {
	if of := gatewayRoutesOf(name); of.port != 0 {
		return portText(of.port)
	}
	return portText(portOfRoutes(name))
}

// AboutHosts reports whether the patch may change virtual hosts of a route configuration.
func (p *Patch) AboutHosts(at Place, configuration string) bool {
	return p.ApplyTo != networking.EnvoyFilter_ROUTE_CONFIGURATION && !(p.ApplyTo == networking.EnvoyFilter_VIRTUAL_HOST && p.Adds()) &&
		p.selectsConfiguration(at, configuration)
}

// VirtualHost is the name of the virtual host that the patch is about; empty if it may be about any.
func (p *Patch) VirtualHost() string { return p.match.GetRouteConfiguration().GetVhost().GetName() }
