package why

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/route"
)

// port returns what the proxy has for a port of a host.
func (i *inquiry) port(s hostSeen, p mesh.Port) reply.Port {
	out := reply.Port{Number: p.Number, Name: p.Name, Protocol: p.Protocol.String()}
	tell := func(k api.Key, fix, format string, args ...any) {
		out.Reasons = append(out.Reasons, i.reason(k, fix, format, args...))
	}
	if p.Protocol == mesh.UDP {
		tell(api.Key{}, "", "UDP is not proxied")
		return out
	}
	for _, name := range i.clusterNames(s, p.Number) {
		if _, ok := i.State.Get(resource.Cluster, name); ok {
			out.Clusters = append(out.Clusters, name)
		}
	}
	if s.service != nil {
		endpoints := i.Queries.Services.Endpoints(i.r, s.service, p.Number)
		out.Endpoints, out.Origins = len(endpoints), i.origins(s.host, endpoints)
		if s.service.Resolution == mesh.Static && len(endpoints) == 0 {
			before := len(i.answer.Reasons)
			i.noEndpoints(s, p.Number, "")
			out.Reasons = append(out.Reasons, i.answer.Reasons[before:]...)
			i.answer.Reasons = i.answer.Reasons[:before]
		}
	}
	i.findEntry(s, p, &out, tell)
	i.destinations(s, p, &out)
	return out
}

// findEntry finds where traffic of clients for a port enters: the listener, and the virtual host if requests are routed.
func (i *inquiry) findEntry(s hostSeen, p mesh.Port, out *reply.Port, tell func(k api.Key, fix, format string, args ...any)) {
	if i.class.Gateway {
		tell(api.Key{}, "", "clients of a gateway use the hosts of its Gateways, not the names of services: pilotctl explain gateway HOST describes such a host")
		return
	}
	var taken *resource.Resource
	for _, l := range i.listenersAt(s, p.Number) {
		if i.leadsToPort(l, s, p, out) {
			return
		}
		taken = l
	}
	for l := range i.State.Layers(resource.Listener).All() { // A Sidecar may bind egress listeners to other addresses, ports and sockets.
		if i.leadsToPort(l, s, p, out) {
			return
		}
	}
	switch {
	case taken == nil:
		tell(api.Key{}, "", "no listener leads to it")
	case i.hasConnectionRules(s):
		out.Listener = taken.Name() // rules send the connections elsewhere
	default:
		by := api.Key{}
		whose := "others"
		for _, c := range taken.Clusters() {
			if n, ok := parseCluster(c); ok {
				if other := i.hostFor(n.host); other.service != nil {
					by, whose = other.service.Declarations[0].Object, n.host
				}
			}
		}
		tell(by, "give the service an address of its own in spec.addresses", "listener %s belongs to %s, which is older", taken.Name(), whose)
	}
}

// leadsToPort reports whether a listener leads to a port of a host, and writes how into out.
func (i *inquiry) leadsToPort(l *resource.Resource, s hostSeen, p mesh.Port, out *reply.Port) bool {
	piece := omap.Name(route.PieceName(s.host, p.Number))
	for _, name := range l.Refs() {
		rc, ok := i.State.Get(resource.Route, name)
		if !ok {
			continue
		}
		if vh, has := rc.Pieces().Get(piece); has && !vh.Hidden() {
			out.Listener, out.Route, out.VirtualHost = l.Name(), name, envoy.VirtualHostName(s.host, p.Number)
			return true
		}
	}
	if slices.ContainsFunc(l.Clusters(), func(c string) bool { return i.isClusterOf(c, s.host, p.Number) }) {
		out.Listener = l.Name()
		return true
	}
	return false
}

// hasConnectionRules reports whether TCP or TLS rules decide where connections for a host go.
func (i *inquiry) hasConnectionRules(s hostSeen) bool {
	list, _ := i.Queries.Rules.Routes.Get(i.r, s.view)
	for _, vs := range list {
		if len(vs.Spec.Tcp)+len(vs.Spec.Tls) > 0 {
			return true
		}
	}
	return false
}

func (i *inquiry) isClusterOf(cluster, host string, port uint32) bool {
	c, ok := parseCluster(cluster)
	return ok && c.host == host && c.port == port
}

// listenersAt are the listeners at the addresses where a port of a host can be reached.
func (i *inquiry) listenersAt(s hostSeen, port uint32) []*resource.Resource {
	addresses := []string{envoy.Wildcard, "::"}
	if i.class.Mode == proxy.None {
		addresses = []string{envoy.Loopback, "::1"}
	}
	if s.service != nil {
		for _, a := range s.service.Addresses {
			if ip, err := netip.ParseAddr(a); err == nil {
				addresses = append([]string{ip.Unmap().String()}, addresses...)
			}
		}
	}
	var list []*resource.Resource
	for _, a := range addresses {
		if l, ok := i.State.Get(resource.Listener, envoy.ListenerName(a, port)); ok {
			list = append(list, l)
		}
	}
	return list
}

// whyNoListener adds the reasons why there is no listener of a name.
func (i *inquiry) whyNoListener(name string) {
	if i.class.Gateway {
		i.addReason(api.Key{}, "", "a gateway listens at the ports of the Gateways that select it, and at no other")
		i.answer.Lists.Names = append(i.answer.Lists.Names, i.listenerNames(""))
		return
	}
	if strings.HasPrefix(name, socketScheme) {
		i.addReason(i.class.Sidecar, "", "no listener is bound to this socket; a Sidecar binds one with spec.egress[].bind")
		i.answer.Lists.Names = append(i.answer.Lists.Names, i.listenerNames(""))
		return
	}
	at := strings.LastIndexAny(name, "_:")
	port, err := strconv.ParseUint(name[at+1:], 10, 16)
	if at < 0 || err != nil {
		i.listenersOf(name)
		return
	}
	ip := name[:at]
	if i.class.Mode == proxy.None && ip != envoy.Loopback && !slices.Contains(i.proxy.Addresses, ip) {
		i.addReason(api.Key{}, "", "nothing redirects connections to this proxy (interception mode NONE): its outbound listeners are at %s", envoy.Loopback)
		if _, ok := i.State.Get(resource.Listener, envoy.ListenerName(envoy.Loopback, uint32(port))); ok {
			i.answer.Similar = []string{envoy.ListenerName(envoy.Loopback, uint32(port))}
		}
		return
	}
	wants := i.candidates(ip, uint32(port))
	if len(wants) == 0 {
		i.addReason(api.Key{}, "", "no service that the proxy sees has port %d at that address", port)
	} else {
		i.addReason(api.Key{}, "", "port %d is the proxy's own, so that %s cannot be reached there", port, strings.Join(wants, ", "))
	}
	i.answer.Lists.Names = append(i.answer.Lists.Names, i.listenerNames("_"+name[at+1:]))
}

// socketScheme begins the names of listeners that are bound to Unix domain sockets.
const socketScheme = "unix://"

// listenerNames yields the names of listeners with a suffix.
func (i *inquiry) listenerNames(suffix string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for l := range i.State.Layers(resource.Listener).All() {
			if strings.HasSuffix(l.Name(), suffix) && !yield(l.Name()) {
				return
			}
		}
	}
}

// listenersOf adds the listeners by which a host is reached.
func (i *inquiry) listenersOf(name string) {
	s := i.hostFor(i.fullHost(name))
	if !s.served() {
		i.whyNoHost(s)
		return
	}
	for _, p := range s.service.Ports {
		out := i.port(s, p)
		i.answer.Reasons = append(i.answer.Reasons, out.Reasons...)
		if l, ok := i.State.Get(resource.Listener, out.Listener); ok && !slices.ContainsFunc(i.answer.Resources, func(r reply.Resource) bool { return r.Name == l.Name() }) {
			i.addFound(l, "")
		}
	}
}

// candidates are the hosts that ask for an address.
func (i *inquiry) candidates(ip string, port uint32) []string {
	at := exposure.Address{IP: ip, Port: port}
	if ip == envoy.Wildcard || ip == "::" {
		at.IP = ""
	}
	all, own := i.Queries.Services.Index.Redirected, i.Queries.Scope.Index.Redirected
	if i.class.Mode == proxy.None {
		at.IP, all, own = "", i.Queries.Services.Index.Loopback, i.Queries.Scope.Index.Loopback
	}
	var list []string
	add := func(group omap.Map[exposure.Candidate, omap.Unit]) {
		for c := range group.All() {
			name := c.Host
			if name == "" {
				name = "HTTP services"
			}
			if c.Created != exposure.OnlyInBase && !slices.Contains(list, name) && len(list) < maxReasons {
				list = append(list, name)
			}
		}
	}
	add(own.Group(i.r, i.set, at))
	if i.set.Overlay() {
		add(all.Group(i.r, service.All{}, at))
	}
	return list
}

// whyNoRoute adds the reasons why there is no route configuration, or no virtual host, of a name.
func (i *inquiry) whyNoRoute(name string) {
	host, port, isHost := hostPort(name)
	if n, err := strconv.ParseUint(name, 10, 16); err == nil {
		i.whyNoRoutes(uint32(n))
		return
	}
	if !isHost {
		i.virtualHostsOf(name)
		return
	}
	s := i.hostFor(i.fullHost(host))
	i.answer.Name = envoy.VirtualHostName(s.host, port)
	if !s.served() {
		i.whyNoHost(s)
		return
	}
	by := s.service.Declarations[0].Object
	p, ok := s.service.Port(port)
	switch {
	case !ok:
		i.addReason(by, "", "%s has no port %d: it has %s", s.host, port, portList(s.service.Ports))
	case !p.Protocol.IsHTTP() && !p.Protocol.Sniffed():
		i.addReason(by, "say so in spec.ports[].protocol if it is HTTP", "port %d of %s is %s, not HTTP: there are connections to forward and no requests to route", port, s.host, p.Protocol)
	default:
		i.addReason(by, "", "all names and addresses of %s on port %d belong to others", s.host, port)
	}
}

// whyNoRoutes adds the reasons why a port has no route configuration.
func (i *inquiry) whyNoRoutes(port uint32) {
	wants := i.candidates(envoy.Wildcard, port)
	if len(wants) > 0 {
		i.addReason(api.Key{}, "", "on port %d the proxy sees no HTTP service, only %s: there are connections to forward and no requests to route", port, strings.Join(wants, ", "))
		return
	}
	i.addReason(api.Key{}, "", "no service that the proxy sees has an HTTP port %d", port)
}

// virtualHostsOf adds all virtual hosts of a host.
func (i *inquiry) virtualHostsOf(name string) {
	s := i.hostFor(i.fullHost(name))
	if !s.inScope || s.service == nil && !i.routesOnly(s) {
		i.whyNoHost(s)
		return
	}
	ports := i.routedPorts(s)
	if s.service != nil {
		ports = s.service.Ports
	}
	for _, p := range ports {
		piece := route.PieceName(s.host, p.Number)
		for rc := range i.State.Layers(resource.Route).All() {
			if vh, ok := rc.Pieces().Get(omap.Name(piece)); ok && !vh.Hidden() {
				i.answer.Name = envoy.VirtualHostName(s.host, p.Number)
				i.addFound(rc, piece)
			}
		}
	}
	i.answer.Name = s.host
	if len(i.answer.Resources) == 0 {
		i.addReason(s.service.Declarations[0].Object, "", "no port of %s is HTTP: it has %s", s.host, portList(s.service.Ports))
	}
}
