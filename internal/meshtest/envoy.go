package meshtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// sharedScope is the name of a scope of metrics, with which --mode validate crashes after it has found the configuration good.
var sharedScope = regexp.MustCompile(`,\s*"sharingName":\s*"[^"]*"`)

// adsCluster is the cluster that a bootstrap names as the source of everything else.
const adsCluster = "ads"

// FindEnvoy finds the real Envoy to test with: the preferred one if given ($ENVOY), else what `make tools` fetched, else
// one on PATH.
func FindEnvoy(preferred string) (string, error) {
	if preferred != "" {
		return preferred, nil
	}
	dir, err := os.Getwd()
	for err == nil {
		if found, _ := filepath.Glob(filepath.Join(dir, ".tools", "envoy-*", "envoy")); len(found) > 0 {
			return found[len(found)-1], nil
		}
		if filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	if path, err := exec.LookPath("envoy"); err == nil {
		return path, nil
	}
	return "", errors.New("no Envoy: set $ENVOY or run make tools")
}

// Accept lets a real Envoy judge the clusters, listeners and routes of a state, as static configuration in dir.
func Accept(t T, path, dir string, s *resource.State) {
	t.Helper()
	b := &bootstrapv3.Bootstrap{
		Node: &corev3.Node{Id: "golden", Cluster: "golden"},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: &corev3.ApiConfigSource{
			ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: adsCluster},
			}}},
		}},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{},
		LayeredRuntime: &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
			Name: "proxies", LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: map[string]*structpb.Value{
				"re2.max_program_size.error_level": structpb.NewStringValue("32768"),
			}}},
		}}},
	}
	static := b.StaticResources
	for _, name := range []string{adsCluster, envoy.SecretsCluster} {
		c := envoy.StaticCluster(name, 1e9, envoy.Address(envoy.Loopback, 1))
		envoy.SetHTTP(c, envoy.HTTP{Upstream: envoy.UpstreamHTTP2})
		static.Clusters = append(static.Clusters, c)
	}
	each(t, s, resource.Cluster, func(m *clusterv3.Cluster) { static.Clusters = append(static.Clusters, m) })
	each(t, s, resource.Listener, func(m *listenerv3.Listener) { static.Listeners = append(static.Listeners, m) })
	port := uint32(20000)
	each(t, s, resource.Route, func(m *routev3.RouteConfiguration) { // routes cannot be static but in a listener
		port++
		l := envoy.Listener("routes "+m.Name, envoy.Loopback, port, envoy.Outbound, true)
		l.FilterChains = []*listenerv3.FilterChain{envoy.Chain("", nil, envoy.HTTPWithRoutes("routes", m, envoy.HTTPOptions{}))}
		static.Listeners = append(static.Listeners, l)
	})
	raw, err := protojson.Marshal(b)
	raw = sharedScope.ReplaceAll(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ValidateBootstrap(path, filepath.Join(dir, "bootstrap.json"), raw); err != nil {
		t.Errorf("Envoy refuses the configuration: %v", err)
	}
}

// ValidateBootstrap writes a bootstrap to a file and lets a real Envoy validate it. The name of the file ends in .json
// or .yaml, which sets the format for Envoy. The error contains the output of Envoy.
func ValidateBootstrap(path, file string, bootstrap []byte) error {
	if err := os.WriteFile(file, bootstrap, 0o600); err != nil {
		return err
	}
	if out, err := exec.Command(path, "--mode", "validate", "-l", "error", "-c", file).CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func each[M any](t T, s *resource.State, typ resource.Type, add func(M)) {
	t.Helper()
	for r := range s.Layers(typ).All() {
		m, err := r.Proto()
		if err != nil {
			t.Fatal(err)
		}
		typed, ok := m.(M)
		if !ok {
			t.Fatal("resource of another type:", r.Name())
		}
		add(typed)
	}
}
