package kube_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// facts are lines. Each line is one fact about the configuration of a proxy.
type facts map[string]bool

func (f facts) add(words ...string) {
	f[strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")] = true
}

// factsOf are the facts of a class state. Names of listeners and routes, the order of chains and endpoints, and resources of
// every proxy are no facts. The lines are:
//
//	cluster NAME TYPE CONNECT-TIMEOUT [HTTP/2 | HTTP as the client] [identity NAME...]
//	endpoint CLUSTER ADDRESS [unhealthy] [in LOCALITY] [priority N] [weight N] [TLS]
//	listener ADDRESS http | tcp -> CLUSTER
//	route ADDRESS-OF-LISTENER NAME -> CLUSTER
//	inbound PORT PROTOCOLS mtls+plain -> CLUSTER
func factsOf(t *testing.T, s *resource.State) facts {
	t.Helper()
	f := facts{}
	for r := range s.Layers(resource.Cluster).All() {
		c := message[*clusterv3.Cluster](t, r)
		if strings.Contains(c.Name, "|") { // every proxy has the other clusters
			f.cluster(t, s, c)
		}
	}
	for r := range s.Layers(resource.Listener).All() {
		switch l := message[*listenerv3.Listener](t, r); {
		case l.Name == envoy.VirtualInbound:
			f.inbound(t, l)
		case l.Name != envoy.VirtualOutbound:
			f.listener(t, s, l)
		}
	}
	return f
}

func message[M proto.Message](t *testing.T, r *resource.Resource) M {
	t.Helper()
	m, err := r.Proto()
	if err != nil {
		t.Fatal(err)
	}
	return m.(M)
}

// unpack decodes a message if it has the type of m.
func unpack[M proto.Message](of interface {
	MessageIs(proto.Message) bool
	UnmarshalTo(proto.Message) error
}, m M) bool {
	return of.MessageIs(m) && of.UnmarshalTo(m) == nil
}

func (f facts) cluster(t *testing.T, s *resource.State, c *clusterv3.Cluster) {
	words := []string{"cluster", c.Name, c.GetType().String(), c.ConnectTimeout.AsDuration().String()}
	for _, o := range c.TypedExtensionProtocolOptions {
		switch http := (&httpv3.HttpProtocolOptions{}); {
		case !unpack(o, http):
		case http.GetUseDownstreamProtocolConfig() != nil:
			words = append(words, "HTTP as the client")
		case http.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil:
			words = append(words, "HTTP/2")
		}
	}
	if names := identities(c); len(names) > 0 {
		words = append(append(words, "identity"), names...)
	}
	f.add(words...)
	r, ok := s.Get(resource.Endpoint, c.Name)
	if c.GetType() != clusterv3.Cluster_EDS || !ok {
		return
	}
	a := message[*endpointv3.ClusterLoadAssignment](t, r)
	var levels []uint32
	for _, group := range a.Endpoints {
		levels = append(levels, group.Priority)
	}
	slices.Sort(levels)
	levels = slices.Compact(levels)
	for _, group := range a.Endpoints {
		for _, e := range group.LbEndpoints {
			words := []string{"endpoint", c.Name, addressOf(e.GetEndpoint().Address)}
			if h := e.HealthStatus; h != corev3.HealthStatus_UNKNOWN && h != corev3.HealthStatus_HEALTHY {
				words = append(words, strings.ToLower(h.String()))
			}
			if at := strings.TrimRight(strings.Join([]string{group.Locality.GetRegion(), group.Locality.GetZone(), group.Locality.GetSubZone()}, "/"), "/"); at != "" {
				words = append(words, "in", at)
			}
			if rank := slices.Index(levels, group.Priority); rank > 0 {
				words = append(words, fmt.Sprintf("priority %d", rank))
			}
			if n := e.LoadBalancingWeight.GetValue(); n > 1 {
				words = append(words, fmt.Sprintf("weight %d", n))
			}
			if usesTLS(c, e.Metadata) {
				words = append(words, "TLS")
			}
			f.add(words...)
		}
	}
}

// identities are the identities that a cluster accepts over the mesh's TLS.
func identities(c *clusterv3.Cluster) []string {
	sockets := []*corev3.TransportSocket{c.TransportSocket}
	for _, m := range c.TransportSocketMatches {
		sockets = append(sockets, m.TransportSocket)
	}
	names := map[string]bool{}
	for _, s := range sockets {
		tls := &tlsv3.UpstreamTlsContext{}
		if s == nil || !unpack(s.GetTypedConfig(), tls) {
			continue
		}
		for _, m := range tls.GetCommonTlsContext().GetCombinedValidationContext().GetDefaultValidationContext().GetMatchTypedSubjectAltNames() {
			names[m.GetMatcher().GetExact()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// usesTLS reports whether an endpoint is reached over TLS: the first socket whose labels its metadata has decides.
func usesTLS(c *clusterv3.Cluster, m *corev3.Metadata) bool {
	has := m.GetFilterMetadata()["envoy.transport_socket_match"].GetFields()
	socket := c.TransportSocket
	for _, s := range slices.Backward(c.TransportSocketMatches) {
		fits := true
		for k, v := range s.Match.GetFields() {
			fits = fits && proto.Equal(has[k], v)
		}
		if fits {
			socket = s.TransportSocket
		}
	}
	return socket != nil && socket.GetTypedConfig().MessageIs(&tlsv3.UpstreamTlsContext{})
}

func addressOf(a *corev3.Address) string {
	at := a.GetSocketAddress()
	ip, err := netip.ParseAddr(at.GetAddress())
	if err != nil {
		return fmt.Sprintf("%s:%d", at.GetAddress(), at.GetPortValue())
	}
	return netip.AddrPortFrom(ip, uint16(at.GetPortValue())).String()
}

func chainsOf(l *listenerv3.Listener) []*listenerv3.FilterChain {
	list := slices.Clone(l.FilterChains)
	if l.DefaultFilterChain != nil {
		list = append(list, l.DefaultFilterChain)
	}
	return list
}

// filterOf is the network filter of a chain: the connection manager, or the cluster that connections go to.
func filterOf(chain *listenerv3.FilterChain) (http *hcmv3.HttpConnectionManager, to string) {
	for _, f := range chain.Filters {
		m, tcp := &hcmv3.HttpConnectionManager{}, &tcpv3.TcpProxy{}
		if unpack(f.GetTypedConfig(), m) {
			return m, ""
		}
		if unpack(f.GetTypedConfig(), tcp) {
			return nil, tcp.GetCluster()
		}
	}
	return nil, ""
}

func (f facts) listener(t *testing.T, s *resource.State, l *listenerv3.Listener) {
	addresses := []string{addressOf(l.Address)}
	for _, a := range l.AdditionalAddresses {
		addresses = append(addresses, addressOf(a.Address))
	}
	for _, at := range addresses {
		for _, chain := range chainsOf(l) {
			http, to := filterOf(chain)
			switch {
			case http != nil:
				f.add("listener", at, "http")
				f.routes(t, s, at, http.GetRds().GetRouteConfigName())
			case strings.Contains(to, "|"):
				f.add("listener", at, "tcp ->", to)
			}
		}
	}
}

func (f facts) routes(t *testing.T, s *resource.State, at, name string) {
	r, ok := s.Get(resource.Route, name)
	if !ok {
		t.Errorf("the route configuration %q of a listener does not exist", name)
		return
	}
	for _, host := range message[*routev3.RouteConfiguration](t, r).VirtualHosts {
		for _, route := range host.Routes {
			if to := route.GetRoute().GetCluster(); strings.Contains(to, "|") {
				for _, domain := range host.Domains {
					f.add("route", at, strings.Trim(domain, "[]"), "->", to)
				}
			}
		}
	}
}

// inbound adds a fact for each port of a workload.
func (f facts) inbound(t *testing.T, l *listenerv3.Listener) {
	t.Helper()
	type served struct{ protocols, modes, to map[string]bool }
	ports := map[uint32]served{}
	for _, chain := range chainsOf(l) {
		port := chain.GetFilterChainMatch().GetDestinationPort().GetValue()
		if port == 0 || chain.GetName() == envoy.InboundBlackhole {
			continue
		}
		p, ok := ports[port]
		if !ok {
			p = served{map[string]bool{}, map[string]bool{}, map[string]bool{}}
			ports[port] = p
		}
		mode, protocol := "plain", "tcp"
		if chain.TransportSocket != nil {
			mode = "mtls"
		}
		http, to := filterOf(chain)
		if http != nil {
			protocol, to = "http", http.GetRouteConfig().VirtualHosts[0].Routes[0].GetRoute().GetCluster()
		}
		p.modes[mode], p.protocols[protocol], p.to[to] = true, true, true
	}
	all := func(m map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(m)), "+") }
	for port, p := range ports {
		f.add("inbound", fmt.Sprint(port), all(p.protocols), all(p.modes), "->", all(p.to))
	}
}
