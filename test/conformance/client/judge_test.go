package client_test

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// script is a server that sends its given responses, whatever the requests.
type script struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	delta []*discoveryv3.DeltaDiscoveryResponse
	sotw  []*discoveryv3.DiscoveryResponse
}

// DeltaAggregatedResources says its lines after the first request.
func (s *script) DeltaAggregatedResources(g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return play(g, s.delta, g.Send, g.Recv)
}

// StreamAggregatedResources says its lines after the first request.
func (s *script) StreamAggregatedResources(g discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return play(g, s.sotw, g.Send, g.Recv)
}

func play[Q, R any](g grpc.ServerStream, lines []R, send func(R) error, recv func() (Q, error)) error {
	if _, err := recv(); err != nil {
		return err
	}
	for _, l := range lines {
		if err := send(l); err != nil {
			return err
		}
	}
	<-g.Context().Done()
	return nil
}

// faults are the rules that a client which asks for everything finds broken by a script.
func faults(t *testing.T, v client.Variant, s *script, responses int) []string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := client.Open(ctx, client.Options{Address: l.Addr().String(), Variant: v, Node: &corev3.Node{Id: "x"}, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, ask := range []struct {
		t     client.Type
		names []string
	}{{client.CDS, nil}, {client.EDS, []string{"asked"}}, {client.LDS, nil}, {client.RDS, []string{"asked"}}} {
		if err := c.Subscribe(ask.t, ask.names...); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Await(ctx, func() bool { return len(c.Log) >= responses }); err != nil {
		t.Fatal(err)
	}
	var rules []string
	for _, f := range c.Faults {
		rules = append(rules, f.Rule)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestFaults: what a server may never do is noticed, and nothing else is.
func TestFaults(t *testing.T) {
	cluster := &clusterv3.Cluster{Name: "c"}
	route := &routev3.RouteConfiguration{Name: "asked", VirtualHosts: []*routev3.VirtualHost{{
		Name: "v", Domains: []string{"*"}, Routes: []*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "c"}}},
		}},
	}}}
	twice := proto.CloneOf(route)
	twice.VirtualHosts = append(twice.VirtualHosts, twice.VirtualHosts[0])
	tcp := &listenerv3.Listener{Name: "l", Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "0.0.0.0", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 1},
	}}}, FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
		Name: "tcp", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(t, &tcpv3.TcpProxy{StatPrefix: "x", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "c"}})},
	}}}}}
	foreign := proto.CloneOf(tcp)
	foreign.FilterChains[0].Filters[0].ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/vendor.Filter"}}
	res := func(m proto.Message, name string) *discoveryv3.Resource {
		return &discoveryv3.Resource{Name: name, Version: "1", Resource: pack(t, m)}
	}
	resp := func(ty client.Type, nonce string, list ...*discoveryv3.Resource) *discoveryv3.DeltaDiscoveryResponse {
		return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: ty.URL(), Nonce: nonce, Resources: list}
	}
	gone := func(ty client.Type, nonce string, names ...string) *discoveryv3.DeltaDiscoveryResponse {
		return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: ty.URL(), Nonce: nonce, RemovedResources: names}
	}
	ttl := res(cluster, "c")
	ttl.Ttl = durationpb.New(time.Second)
	bare := res(cluster, "c")
	bare.Version = ""
	for _, c := range []struct {
		what  string
		want  []string
		lines []*discoveryv3.DeltaDiscoveryResponse
	}{
		{"all is well", nil, []*discoveryv3.DeltaDiscoveryResponse{resp(client.CDS, "1", res(cluster, "c")), resp(client.LDS, "2", res(tcp, "l")), resp(client.RDS, "3", res(route, "asked"))}},
		{"no nonce", []string{"nonce/present"}, []*discoveryv3.DeltaDiscoveryResponse{resp(client.CDS, "", res(cluster, "c"))}},
		{"a nonce twice", []string{"nonce/present"}, []*discoveryv3.DeltaDiscoveryResponse{resp(client.CDS, "1", res(cluster, "c")), resp(client.CDS, "1")}},
		{"no version", []string{"version/present"}, []*discoveryv3.DeltaDiscoveryResponse{resp(client.CDS, "1", bare)}},
		{"a time to live", []string{"version/no-ttl"}, []*discoveryv3.DeltaDiscoveryResponse{resp(client.CDS, "1", ttl)}},
		{"two names", []string{"version/name"}, []*discoveryv3.DeltaDiscoveryResponse{resp(client.CDS, "1", res(cluster, "d"))}},
		{"a name twice", []string{"content/no-duplicates"}, []*discoveryv3.DeltaDiscoveryResponse{resp(client.CDS, "1", res(cluster, "c"), res(cluster, "c"))}},
		{"another type inside", []string{"first/type"}, []*discoveryv3.DeltaDiscoveryResponse{resp(client.CDS, "1", res(tcp, "l"))}},
		{"what nobody asked for", []string{"first/only-named"}, []*discoveryv3.DeltaDiscoveryResponse{resp(client.EDS, "1", res(&endpointv3.ClusterLoadAssignment{ClusterName: "e"}, "e"))}},
		{"a strange removal", []string{"removal/never-had"}, []*discoveryv3.DeltaDiscoveryResponse{gone(client.CDS, "1", "x")}},
		{"an invalid resource", []string{"content/valid"}, []*discoveryv3.DeltaDiscoveryResponse{resp(client.EDS, "1", res(&endpointv3.ClusterLoadAssignment{ClusterName: "asked", Policy: &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{}}}}, "asked"))}},
		{"a vendor's filter", []string{"content/known-types"}, []*discoveryv3.DeltaDiscoveryResponse{resp(client.LDS, "1", res(foreign, "l"))}},
		{"a virtual host twice", []string{"content/envoy-rejects"}, []*discoveryv3.DeltaDiscoveryResponse{resp(client.CDS, "1", res(cluster, "c")), resp(client.RDS, "2", res(twice, "asked"))}},
		{"a route before its cluster", []string{"order/make-before-break"}, []*discoveryv3.DeltaDiscoveryResponse{resp(client.RDS, "1", res(route, "asked"))}},
		{"a listener before its cluster", []string{"order/make-before-break"}, []*discoveryv3.DeltaDiscoveryResponse{resp(client.LDS, "1", res(tcp, "l"))}},
		{"a cluster gone before its listener", []string{"order/break-last"}, []*discoveryv3.DeltaDiscoveryResponse{resp(client.CDS, "1", res(cluster, "c")), resp(client.LDS, "2", res(tcp, "l")), gone(client.CDS, "3", "c")}},
	} {
		if got := faults(t, client.Delta, &script{delta: c.lines}, len(c.lines)); !slices.Equal(got, c.want) {
			t.Errorf("%s: the faults found are %q, want %q", c.what, got, c.want)
		}
	}
}

// TestFaultsSotW: the faults that differ in State-of-the-World.
func TestFaultsSotW(t *testing.T) {
	cluster := pack(t, &clusterv3.Cluster{Name: "c"})
	wrapped := pack(t, &discoveryv3.Resource{Name: "c", Resource: cluster, Ttl: durationpb.New(time.Second)})
	for _, c := range []struct {
		what string
		want []string
		line *discoveryv3.DiscoveryResponse
	}{
		{"all is well", nil, &discoveryv3.DiscoveryResponse{VersionInfo: "1", Resources: []*anypb.Any{cluster}}},
		{"no version", []string{"version/present"}, &discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{cluster}}},
		{"a time to live", []string{"version/no-ttl"}, &discoveryv3.DiscoveryResponse{VersionInfo: "1", Resources: []*anypb.Any{wrapped}}},
		{"a name twice", []string{"content/no-duplicates"}, &discoveryv3.DiscoveryResponse{VersionInfo: "1", Resources: []*anypb.Any{cluster, cluster}}},
	} {
		c.line.TypeUrl, c.line.Nonce = client.CDS.URL(), "1"

		if got := faults(t, client.SotW, &script{sotw: []*discoveryv3.DiscoveryResponse{c.line}}, 1); !slices.Equal(got, c.want) {
			t.Errorf("%s: the faults found are %q, want %q", c.what, got, c.want)
		}
	}
}
