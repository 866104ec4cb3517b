package access

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
	realenvoy "github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/exam/pki"
	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/kit/process"
	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

// patience is how long anything may take on a busy machine.
const patience = time.Minute

// askedHeader is what the authorizer adds to requests that it lets through, which are all.
const askedHeader = "X-Asked"

// secrets serves what the agent serves: the certificate of a workload, and the roots of the mesh.
type secrets struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	keys *pki.Material
}

// StreamSecrets answers each request once. Nothing changes later.
func (s secrets) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client has gone
		}
		if r.VersionInfo != "" {
			continue
		}
		answer := &discoveryv3.DiscoveryResponse{TypeUrl: r.TypeUrl, VersionInfo: "1", Nonce: "1"}
		for _, name := range r.ResourceNames {
			secret, err := s.secret(name)
			if err != nil {
				return err
			}
			packed, err := anypb.New(secret)
			if err != nil {
				return err
			}
			answer.Resources = append(answer.Resources, packed)
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func (s secrets) secret(name string) (*tlsv3.Secret, error) {
	inline := func(text string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}}
	}
	if name == "ROOTCA" {
		return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{
			ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(s.keys.Mesh.Pair().Cert)},
		}}, nil
	}
	pair, err := s.keys.Mesh.Issue(pki.Spiffe("cluster.local", "any", "workload"))
	if err != nil {
		return nil, err
	}
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{
		TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline(pair.Cert), PrivateKey: inline(pair.Key)},
	}}, nil
}

// application plays all workloads: it speaks HTTP or echoes lines, in plain text or over TLS, as the client begins. A request is
// answered with its path.
type application struct{ certificate tls.Certificate }

func (a application) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(c)
	first, err := in.Peek(1)
	if err != nil {
		return
	}
	if first[0] == 0x16 { // TLS
		secure := tls.Server(begun{c, in}, &tls.Config{Certificates: []tls.Certificate{a.certificate}})
		c, in = secure, bufio.NewReader(secure)
	}
	line, err := in.ReadString('\n')
	if err != nil {
		return
	}
	if !strings.Contains(line, " HTTP/1.1") {
		fmt.Fprintf(c, "echo %s", line)
		return
	}
	asked := ""
	for _, h := range headers(in) {
		if name, _, _ := strings.Cut(h, ":"); strings.EqualFold(name, askedHeader) {
			asked = askedHeader + ": yes\r\n"
		}
	}
	path := strings.Fields(line)[1]
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n%sX-Path: %s\r\nContent-Length: 0\r\n\r\n", asked, path)
}

// begun is a connection whose first bytes were read already.
type begun struct {
	net.Conn
	in io.Reader
}

func (b begun) Read(p []byte) (int, error) { return b.in.Read(p) }

// startApplication starts the application, and returns its address.
func startApplication(t *testing.T, keys *pki.Material) net.Addr {
	t.Helper()
	pair, err := keys.Public.Issue(certs.Identity{Name: "app", Hosts: []string{"app.test"}})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return listen(t, application{certificate}.serve)
}

// startAuthorizer starts an external authorizer that lets everything through, and says that it was asked. Package http would refuse odd
// paths.
func startAuthorizer(t *testing.T) net.Addr {
	t.Helper()
	return listen(t, func(c net.Conn) {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		if headers(bufio.NewReader(c)) != nil {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n%s: yes\r\nContent-Length: 0\r\n\r\n", askedHeader)
		}
	})
}

// listen serves connections at an address until the test ends.
func listen(t *testing.T, serve func(net.Conn)) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { // it ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr()
}

// headers reads lines up to an empty one; nil if the connection ends before.
func headers(in *bufio.Reader) (lines []string) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil
		}
		if line = strings.TrimSpace(line); line == "" {
			return lines
		}
		lines = append(lines, line)
	}
}

// startEnvoy starts an Envoy with listeners. Clusters lead to addresses.
func startEnvoy(t *testing.T, keys *pki.Material, listeners []*listenerv3.Listener, clusters map[string]net.Addr) {
	t.Helper()
	dir, err := os.MkdirTemp("", "access-") // the paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "sds"))
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(g, secrets{keys: keys})
	go func() { _ = g.Serve(l) }() // it ends by Stop
	t.Cleanup(g.Stop)
	static := &bootstrapv3.Bootstrap_StaticResources{Listeners: listeners}
	sds := cluster(envoy.SecretsCluster, pipe(filepath.Join(dir, "sds")))
	envoy.SetHTTP(sds, envoy.HTTP{Upstream: envoy.UpstreamHTTP2})
	static.Clusters = append(static.Clusters, sds)
	for name, address := range clusters {
		tcp := address.(*net.TCPAddr)
		static.Clusters = append(static.Clusters, cluster(name, envoy.Address(tcp.IP.String(), uint32(tcp.Port))))
	}
	agent := map[string]any{"re2.max_program_size.error_level": "32768", "envoy.reloadable_features.http_reject_path_with_fragment": "false"}
	runtime, err := structpb.NewStruct(agent)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := protojson.Marshal(&bootstrapv3.Bootstrap{
		Node: &corev3.Node{Id: "access", Cluster: "access"}, StaticResources: static, Admin: &bootstrapv3.Admin{Address: pipe(filepath.Join(dir, "admin"))},
		LayeredRuntime: &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{
			{Name: "static", LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: runtime}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, raw)
}

func pipe(path string) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
}

func cluster(name string, at *corev3.Address) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}, ConnectTimeout: durationpb.New(patience),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: at}},
		}}}}},
	}
}

// run runs Envoy with a bootstrap until the test ends, and waits until it is live.
func run(t *testing.T, dir string, bootstrap []byte) {
	t.Helper()
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	binary, _, err := realenvoy.Find(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "bootstrap.json")
	if err := os.WriteFile(file, bootstrap, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := process.StartLogged("envoy", filepath.Join(dir, "envoy.log"),
		exec.Command(binary, "-c", file, "--concurrency", "1", "--disable-hot-restart", "-l", "error"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	admin := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "admin"))
	}}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = testbed.Until(ctx, "Envoy to be live", func(ctx context.Context) error {
		if !p.Running() {
			return nil // Alive returns the error
		}
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://admin/ready", http.NoBody)
		if err != nil {
			return err
		}
		answer, err := admin.Do(q)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err == nil && !bytes.HasPrefix(body, []byte("LIVE")) {
			err = errors.New(string(body))
		}
		return err
	})
	if err := errors.Join(err, p.Alive()); err != nil {
		t.Fatal(err, p.Tail())
	}
}
