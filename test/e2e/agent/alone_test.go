package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestWithoutEnvoy: with DISABLE_ENVOY the agent runs for a program whose gRPC library is its own data plane. The library reads the
// bootstrap that the agent has written, asks the control plane through the agent, and calls the service that it is sent.
func TestWithoutEnvoy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "grpc-bootstrap.json")
	o := options()
	o.Env = []string{"DISABLE_ENVOY=true", "GRPC_XDS_BOOTSTRAP=" + file}
	a, err := testbed.StartAgent(o, dir, testbed.Node{Name: "app", Namespace: "shop", Discovery: grpcControlPlane(t, grpcService(t))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	if err := a.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var bootstrap struct {
		Node struct {
			ID       string
			Metadata map[string]any
		}
	}
	if err := json.Unmarshal(text, &bootstrap); err != nil || !strings.HasPrefix(bootstrap.Node.ID, "sidecar~127.1.0.1~app.shop~") || bootstrap.Node.Metadata["GENERATOR"] != "grpc" {
		t.Errorf("%v\n%s", err, text)
	}
	resolver, err := xds.NewXDSResolverWithConfigForTesting(text)
	if err != nil {
		t.Fatal(err)
	}
	c, err := grpc.NewClient("xds:///greeter", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(resolver))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing is buffered
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := healthv1.NewHealthClient(c).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil || answer.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", answer, err)
	}
	if pids, err := a.EnvoyPIDs(); err != nil || len(pids) > 0 {
		t.Errorf("there are Envoys: %v, %v", pids, err)
	}
	if err := a.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, err := a.Wait(ctx); code != 0 || err != nil {
		t.Errorf("it ended with %d, %v", code, err)
	}
}

// grpcService is a gRPC server that answers health checks.
func grpcService(t *testing.T) (port int) {
	t.Helper()
	return serveGRPC(t, func(s *grpc.Server) { healthv1.RegisterHealthServer(s, health.NewServer()) })
}

// grpcControlPlane is a control plane that leads the host greeter to a port. It returns its address.
func grpcControlPlane(t *testing.T, port int) string {
	t.Helper()
	at := serveGRPC(t, func(s *grpc.Server) {
		discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, &fixed{resources: greeter(t, port)})
	})
	return testbed.Loopback(at)
}

func serveGRPC(t *testing.T, register func(*grpc.Server)) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	go func() { _ = s.Serve(l) }() // ends by Stop
	t.Cleanup(s.Stop)
	return l.Addr().(*net.TCPAddr).Port
}

// fixed answers each State-of-the-World request for a type that it has resources of, once per stream.
type fixed struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	resources map[string]*anypb.Any // by type
}

// StreamAggregatedResources implements discoveryv3.AggregatedDiscoveryServiceServer.
func (f *fixed) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		resource := f.resources[req.GetTypeUrl()]
		if resource == nil || req.GetResponseNonce() != "" {
			continue
		}
		if err := stream.Send(&discoveryv3.DiscoveryResponse{VersionInfo: "1", Nonce: "1", TypeUrl: req.GetTypeUrl(), Resources: []*anypb.Any{resource}}); err != nil {
			return err
		}
	}
}

// greeter are the resources that lead the host greeter to a port.
func greeter(t *testing.T, port int) map[string]*anypb.Any {
	t.Helper()
	manager := &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{{
			Name: "greeter", Domains: []string{"*"}, Routes: []*routev3.Route{{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "greeter"}}},
			}},
		}}}},
		HttpFilters: []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(t, &routerv3.Router{})}}},
	}
	at := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
	ads := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
	all := map[string]*anypb.Any{}
	for _, m := range []proto.Message{
		&listenerv3.Listener{Name: "greeter", ApiListener: &listenerv3.ApiListener{ApiListener: pack(t, manager)}},
		&clusterv3.Cluster{
			Name: "greeter", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads},
		},
		&endpointv3.ClusterLoadAssignment{ClusterName: "greeter", Endpoints: []*endpointv3.LocalityLbEndpoints{{
			Locality: &corev3.Locality{Region: "here"}, LoadBalancingWeight: wrapperspb.UInt32(1),
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: at}}}},
		}}},
	} {
		resource := pack(t, m)
		all[resource.GetTypeUrl()] = resource
	}
	return all
}

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	packed, err := anypb.New(m)
	if err != nil {
		t.Fatal(fmt.Errorf("packing: %w", err))
	}
	return packed
}
