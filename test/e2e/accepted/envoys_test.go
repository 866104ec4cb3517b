package accepted

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/kit/process"
	"github.com/pilotmesh/pilot/test/netns"
)

// proxyNode is the node of an Envoy of the test.
type proxyNode struct {
	id       string
	sotw     bool
	metadata tree
}

func nodes() []proxyNode {
	return []proxyNode{
		{id: "sidecar~10.1.0.1~a-1.shop~shop.svc.cluster.local", metadata: tree{"LABELS": tree{"app": "a", "version": "v1", "istio-locality": "r1/z1"}, "INTERCEPTION_MODE": "REDIRECT", "DNS_CAPTURE": "true"}},
		{id: "sidecar~10.1.0.2~b-1.shop~shop.svc.cluster.local", sotw: true, metadata: tree{"LABELS": tree{"app": "b"}, "INTERCEPTION_MODE": "NONE", "INSTANCE_IPS": "10.1.0.2,2001:db8::2", "HTTP10": "1"}},
		{id: "router~10.1.0.9~gw-1.shop~shop.svc.cluster.local", metadata: tree{"LABELS": tree{"istio": "ingressgateway"}}},
	}
}

// envoy is a real Envoy in a network namespace of its own.
type envoy struct{ process *process.Process }

// world is what all Envoys of a test need.
type world struct {
	binary, dir, sockets string
	plane                *plane
}

// newWorld starts the control plane and the server of secrets.
func newWorld(t *testing.T, binary string) *world {
	t.Helper()
	sockets, err := os.MkdirTemp("", "accepted-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	w := &world{binary: binary, dir: t.TempDir(), sockets: sockets}
	w.plane = newPlane(t, filepath.Join(sockets, "xds"))
	serveSecrets(t, filepath.Join(sockets, "sds"))
	return w
}

// start starts the Envoys.
func (w *world) start(t *testing.T) (list []*envoy) {
	t.Helper()
	for _, n := range nodes() {
		e, err := w.startOne(n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.process.Kill)
		list = append(list, e)
	}
	return list
}

func (w *world) startOne(n proxyNode) (*envoy, error) {
	ns, err := netns.New()
	if err != nil {
		return nil, err
	}
	defer ns.Close() // the process keeps it
	if err := ns.IP("link set lo up"); err != nil {
		return nil, err
	}
	if err := ns.Sysctl(map[string]string{"ipv4/ip_nonlocal_bind": "1", "ipv6/ip_nonlocal_bind": "1"}); err != nil {
		return nil, err
	}
	text, err := json.Marshal(n.bootstrap(w.sockets))
	if err != nil {
		return nil, err
	}
	name := strings.Split(n.id, "~")[2]
	file := filepath.Join(w.dir, name+".json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), w.binary, "-c", file, "--concurrency", "1", "--disable-hot-restart", "--drain-time-s", "1", "--drain-strategy", "immediate", "-l", "error")
	cmd.Dir = w.dir // where it makes files of logs with relative paths
	p, err := process.StartInside("envoy-"+name, filepath.Join(w.dir, name+".log"), cmd, ns.Enter)
	if err != nil {
		return nil, err
	}
	return &envoy{p}, nil
}

func pipe(path string) tree { return tree{"pipe": tree{"path": path}} }

func grpcCluster(name string, address tree) tree {
	return tree{
		"name": name, "type": "STATIC", "connect_timeout": "1s",
		"load_assignment": tree{"cluster_name": name, "endpoints": []tree{{"lb_endpoints": []tree{{"endpoint": tree{"address": address}}}}}},
		"typed_extension_protocol_options": tree{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": tree{
			"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
			"explicit_http_config": tree{"http2_protocol_options": tree{}},
		}},
	}
}

func (n proxyNode) bootstrap(sockets string) tree {
	api := "DELTA_GRPC"
	if n.sotw {
		api = "GRPC"
	}
	metadata := tree{"NAMESPACE": "shop", "CLUSTER_ID": "Kubernetes", "MESH_ID": "cluster.local", "ISTIO_VERSION": "1.32.0"}
	for k, v := range n.metadata {
		metadata[k] = v
	}
	ads := tree{"ads": tree{}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
	return tree{
		"node": tree{"id": n.id, "cluster": "accepted", "metadata": metadata},
		"layered_runtime": tree{"layers": []tree{{
			"name": "static", "static_layer": tree{"re2.max_program_size.error_level": "32768"},
		}}},
		"typed_dns_resolver_config": tree{"name": "envoy.network.dns_resolver.cares", "typed_config": tree{
			"@type":     "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
			"resolvers": []tree{{"socket_address": tree{"address": "127.0.0.1", "port_value": 9}}}, // refuses at once
		}},
		"dynamic_resources": tree{
			"lds_config": ads, "cds_config": ads,
			"ads_config": tree{
				"api_type": api, "transport_api_version": "V3", "set_node_on_first_message_only": true,
				"grpc_services": []tree{{"envoy_grpc": tree{"cluster_name": "xds-grpc"}}},
			},
		},
		"static_resources": tree{"clusters": []tree{
			grpcCluster("xds-grpc", pipe(filepath.Join(sockets, "xds"))), grpcCluster("sds-grpc", pipe(filepath.Join(sockets, "sds"))),
		}},
	}
}

// secrets answers each name with a certificate, or with roots if the name is one of roots.
type secrets struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	pair  certs.Pair
	roots string
}

func serveSecrets(t *testing.T, socket string) {
	t.Helper()
	ca, err := certs.NewAuthority("accepted")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(certs.Identity{Name: "a", URIs: []string{"spiffe://cluster.local/ns/shop/sa/a"}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(g, &secrets{pair: pair, roots: ca.Pair().Cert})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(l) // it ends with Stop
	}()
	t.Cleanup(func() { g.Stop(); <-done })
}

func inline(s string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: s}}
}

func (s *secrets) find(name string) *tlsv3.Secret {
	if name == "ROOTCA" || strings.HasPrefix(name, "file-root:") || strings.HasSuffix(name, "-cacert") {
		return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(s.roots)}}}
	}
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline(s.pair.Cert), PrivateKey: inline(s.pair.Key)}}}
}

func (s *secrets) StreamSecrets(st secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	for {
		req, err := st.Recv()
		if err != nil {
			return err
		}
		if req.ResponseNonce != "" {
			continue
		}
		r := &discoveryv3.DiscoveryResponse{TypeUrl: req.TypeUrl, VersionInfo: "1", Nonce: "1"}
		for _, name := range req.ResourceNames {
			a, err := anypb.New(s.find(name))
			if err != nil {
				return err
			}
			r.Resources = append(r.Resources, a)
		}
		if err := st.Send(r); err != nil {
			return err
		}
	}
}

func (s *secrets) DeltaSecrets(st secretv3.SecretDiscoveryService_DeltaSecretsServer) error {
	for {
		req, err := st.Recv()
		if err != nil {
			return err
		}
		if len(req.ResourceNamesSubscribe) == 0 {
			continue
		}
		r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: req.TypeUrl, SystemVersionInfo: "1", Nonce: "1"}
		for _, name := range req.ResourceNamesSubscribe {
			a, err := anypb.New(s.find(name))
			if err != nil {
				return err
			}
			r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Version: "1", Resource: a})
		}
		if err := st.Send(r); err != nil {
			return err
		}
	}
}
