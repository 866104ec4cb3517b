package envoy

import (
	"math"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// Dashboards and users know Istio's names: they must not change.
func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		OutboundCluster(80, "v1", "a.com"): "outbound|80|v1|a.com",
		ServerName(80, "v1", "a.com"):      "outbound_.80_.v1_.a.com",
		InboundCluster(8080):               "inbound|8080||",
		ListenerName("10.0.0.1", 80):       "10.0.0.1_80",
		RouteName(80):                      "80",
		SniffedRouteName("a.com", 80):      "a.com:80",
		VirtualHostName("a.com", 80):       "a.com:80",
		ProxyRouteName(0):                  "http_proxy",
		ProxyRouteName(2):                  "http_proxy_2",
		AddressDomain("10.0.0.1"):          "10.0.0.1",
		AddressDomain("2001:db8::1"):       "[2001:db8::1]",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Envoy refuses weights whose sum exceeds 32 bits; scaled weights keep their order and none becomes 0.
func TestAssignmentScalesWeights(t *testing.T) {
	endpoints := []mesh.PortEndpoint{
		{Port: 80, Endpoint: &mesh.Endpoint{Address: "10.0.0.1", Weight: math.MaxUint32}},
		{Port: 80, Endpoint: &mesh.Endpoint{Address: "10.0.0.2", Weight: math.MaxUint32 / 2}},
		{Port: 80, Endpoint: &mesh.Endpoint{Address: "10.0.0.3"}},
	}
	group := Assignment("a", []mesh.Group{{Endpoints: endpoints}}, false, Peers{}).Endpoints[0]
	sum, weights := uint64(0), []uint32{}
	for _, e := range group.LbEndpoints {
		weights = append(weights, e.LoadBalancingWeight.Value)
		sum += uint64(e.LoadBalancingWeight.Value)
	}
	if sum > math.MaxUint32 || uint64(group.LoadBalancingWeight.Value) != sum {
		t.Errorf("the weights %v add up to %d, the locality has %d", weights, sum, group.LoadBalancingWeight.Value)
	}
	if weights[0] <= weights[1] || weights[1] <= weights[2] || weights[2] != 1 {
		t.Errorf("weights %v", weights)
	}
}

// The type of a name in a certificate follows from its form.
func TestSubjectAltName(t *testing.T) {
	for name, want := range map[string]tlsv3.SubjectAltNameMatcher_SanType{
		"a.com":                      tlsv3.SubjectAltNameMatcher_DNS,
		"spiffe://cluster/ns/a/sa/b": tlsv3.SubjectAltNameMatcher_URI,
		"10.0.0.1":                   tlsv3.SubjectAltNameMatcher_IP_ADDRESS,
		"2001:db8::1":                tlsv3.SubjectAltNameMatcher_IP_ADDRESS,
		"me@a.com":                   tlsv3.SubjectAltNameMatcher_EMAIL,
	} {
		if m := subjectAltName(name); m.SanType != want || m.Matcher.GetExact() != name {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// The PROXY protocol header comes before TLS: its socket wraps every other socket of the cluster.
func TestSendProxyProtocol(t *testing.T) {
	c := &clusterv3.Cluster{}
	UseAutoTLS(c, ClientTLS{Mesh: true})
	SendProxyProtocol(c, true)
	inner := func(s *corev3.TransportSocket) string {
		m := new(proxyprotocolv3.ProxyProtocolUpstreamTransport)
		if err := s.GetTypedConfig().UnmarshalTo(m); err != nil {
			t.Fatal(err)
		}
		if m.Config.Version != corev3.ProxyProtocolConfig_V2 {
			t.Errorf("version %v", m.Config.Version)
		}
		return m.TransportSocket.Name
	}
	if got := inner(c.TransportSocket); got != rawSocket {
		t.Errorf("plain text is sent through %q", got)
	}
	if got := inner(c.TransportSocketMatches[0].TransportSocket); got != tlsSocket {
		t.Errorf("TLS is sent through %q", got)
	}
}
