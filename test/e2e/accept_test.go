package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/test/repo"
)

// captures are the ways a sidecar can get at traffic; each has listeners of its own kind.
var captures = []string{"REDIRECT", "NONE"}

// TestSamplesAccepted: Envoy accepts all that the samples become, loaded as if it were its own configuration.
func TestSamplesAccepted(t *testing.T) {
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	samples, err := filepath.Glob(filepath.Join(root, "samples", "*"))
	if err != nil || len(samples) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	for _, dir := range samples {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			w := meshtest.New(t)
			files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
			if err != nil || len(files) == 0 {
				t.Fatalf("no files: %v", err)
			}
			for _, f := range files {
				text, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				w.Apply(string(text))
			}
			for _, capture := range captures {
				s := classState(t, w, capture, filepath.Base(dir))
				if s.Layers(resource.Cluster).Len() == 0 {
					t.Errorf("%s: no cluster comes of the sample", capture)
				}
				accepted(t, t.TempDir(), s)
			}
		})
	}
}

// TestRandomAccepted: Envoy accepts whatever random meshes become, in which hosts, ports and names collide.
func TestRandomAccepted(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		w := meshtest.New(rt)
		random := meshtest.Random{T: rt}
		for range rapid.IntRange(1, 25).Draw(rt, "objects") {
			w.Put(random.Object())
		}
		capture := rapid.SampledFrom(captures).Draw(rt, "capture")
		namespace := rapid.SampledFrom(meshtest.Namespaces()).Draw(rt, "namespace")
		accepted(rt, dir, classState(rt, w, capture, namespace))
	})
}

func classState(t meshtest.T, w *meshtest.World, capture, namespace string) *resource.State {
	t.Helper()
	id := "sidecar~10.1.0.1~client." + namespace + "~" + namespace + ".svc.cluster.local"
	return w.State(w.Connect(meshtest.Node(t, id, `{"INTERCEPTION_MODE":"`+capture+`"}`)))
}

// accepted lets Envoy judge a state. Each resource becomes something static: an assignment the content of a cluster of
// its own, a route configuration that of a listener.
func accepted(t meshtest.T, dir string, s *resource.State) {
	t.Helper()
	b := &bootstrapv3.Bootstrap{
		Node:            &corev3.Node{Id: "accept", Cluster: "accept"},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{{Name: "xds-grpc", ConnectTimeout: durationpb.New(1)}}},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: &corev3.ApiConfigSource{
			ApiType: corev3.ApiConfigSource_DELTA_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "xds-grpc"}}}},
		}},
	}
	for typ := range resource.Type(resource.Types) {
		for r := range s.Layers(typ).All() {
			m, err := r.Proto()
			if err == nil {
				err = add(b.StaticResources, m)
			}
			if err != nil {
				t.Errorf("%v %q: %v", typ, r.Name(), err)
			}
		}
	}
	text, err := protojson.MarshalOptions{Multiline: true}.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "envoy.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(envoyBinary, "--mode", "validate", "-l", "error", "-c", path).CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n") // the reason stands at the end, below the whole configuration
		t.Errorf("Envoy refuses (%v): %s", err, strings.Join(lines[max(0, len(lines)-3):], "\n"))
	}
}

// add puts one resource among the static ones.
func add(to *bootstrapv3.Bootstrap_StaticResources, m proto.Message) error {
	switch m := m.(type) {
	case *clusterv3.Cluster:
		to.Clusters = append(to.Clusters, m)
	case *endpointv3.ClusterLoadAssignment:
		name := "assignment of " + m.ClusterName
		to.Clusters = append(to.Clusters, &clusterv3.Cluster{
			Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
			ConnectTimeout: durationpb.New(1), LoadAssignment: m,
		})
	case *listenerv3.Listener:
		to.Listeners = append(to.Listeners, m)
	case *routev3.RouteConfiguration:
		l, err := carrier(m)
		if err != nil {
			return err
		}
		to.Listeners = append(to.Listeners, l)
	default:
		return fmt.Errorf("nothing can be made of a %T", m)
	}
	return nil
}

// carrier is a listener with a route configuration in it.
func carrier(rc *routev3.RouteConfiguration) (*listenerv3.Listener, error) {
	router, err := anypb.New(&routerv3.Router{})
	if err != nil {
		return nil, err
	}
	hcm, err := anypb.New(&hcmv3.HttpConnectionManager{
		StatPrefix:     "carrier",
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: rc},
		HttpFilters:    []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router}}},
	})
	if err != nil {
		return nil, err
	}
	return &listenerv3.Listener{
		Name:         "carrier of " + rc.Name,
		Address:      &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{}}}},
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm}}}}},
	}, nil
}

// verdict records what accepted says.
type verdict struct {
	*testing.T
	refused string
}

func (v *verdict) Errorf(format string, args ...any) { v.refused += fmt.Sprintf(format, args...) }

// TestRefusalIsSeen: what Envoy refuses does not pass for accepted, whatever type it is of.
func TestRefusalIsSeen(t *testing.T) {
	for typ, m := range map[resource.Type]proto.Message{
		resource.Cluster:  &clusterv3.Cluster{Name: "bad", LbPolicy: clusterv3.Cluster_CLUSTER_PROVIDED},
		resource.Endpoint: assignment("not-an-address"),
		resource.Listener: &listenerv3.Listener{Name: "bad"},
		resource.Route:    &routev3.RouteConfiguration{Name: "bad", VirtualHosts: []*routev3.VirtualHost{{Name: "bad", Domains: []string{"*.*"}}, {Name: "bad", Domains: []string{"*.*"}}}},
	} {
		s := &resource.State{}
		s.Types[typ] = resource.Layers{omap.Map[omap.Name, *resource.Resource]{}.With(omap.Put(omap.Name("bad"), resource.New(typ, "bad", m)))}
		v := &verdict{T: t}
		accepted(v, t.TempDir(), s)
		if !strings.Contains(v.refused, "Envoy refuses") {
			t.Errorf("a bad %v was accepted: %s", typ, v.refused)
		}
	}
}

func assignment(address string) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: "bad", Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
			}}},
		}}}},
	}}}
}
