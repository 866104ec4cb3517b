package agent

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/test/kit/certs"
)

// secretService serves one certificate under every name, to each Envoy that asks.
type secretService struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	mu      sync.Mutex
	pair    certs.Pair
	version int
	changed chan struct{} // closed when there is another certificate
	asked   chan string   // the names asked for
}

// put replaces the certificate.
func (s *secretService) put(pair certs.Pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pair = pair
	s.version++
	if s.changed != nil {
		close(s.changed)
	}
	s.changed = make(chan struct{})
}

// answer is the response with the certificate, and the channel that is closed when there is another one.
func (s *secretService) answer(name string) (*discoveryv3.DiscoveryResponse, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inline := func(text string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}}
	}
	packed, err := anypb.New(&tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(s.pair.Cert), PrivateKey: inline(s.pair.Key),
	}}})
	version := fmt.Sprint(s.version)
	return &discoveryv3.DiscoveryResponse{VersionInfo: version, Nonce: version, TypeUrl: packed.GetTypeUrl(), Resources: []*anypb.Any{packed}}, s.changed, err
}

// StreamSecrets answers the first request, and again after each change.
func (s *secretService) StreamSecrets(st secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	req, err := st.Recv()
	if err != nil {
		return err
	}
	name := req.GetResourceNames()[0]
	select {
	case s.asked <- name:
	default:
	}
	for {
		resp, changed, err := s.answer(name)
		if err == nil {
			err = st.Send(resp)
		}
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-st.Context().Done():
			return nil
		}
	}
}

// TestSecretService: a gateway has its certificate from the service of an extension provider, follows the service, and keeps the last certificate
// while the service is away. A name of no provider is a problem, and the other hosts are served.
func TestSecretService(t *testing.T) {
	authority, err := certs.NewAuthority("vault")
	if err != nil {
		t.Fatal(err)
	}
	service := &secretService{asked: make(chan string, 10)}
	renew := func(name string) {
		pair, err := authority.Issue(certs.Identity{Name: name, Hosts: []string{edgeHost("vault")}})
		if err != nil {
			t.Fatal(err)
		}
		service.put(pair)
	}
	renew("first")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(server, service)
	go func() { _ = server.Serve(l) }() // ends by Stop
	t.Cleanup(server.Stop)
	mesh := filepath.Join(t.TempDir(), "mesh.yaml")
	if err := os.WriteFile(mesh, []byte("extensionProviders: [{name: certificates, sds: {name: vault, service: sds.shop.svc.cluster.local, port: 8234}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const external = "{port: {number: 443, name: %[1]s, protocol: HTTPS}, hosts: [%[1]s.edge.example.com], tls: {mode: SIMPLE, credentialName: 'sds://%[2]s'}}"
	e := newEdgeWith(t, nil, []string{"--meshConfig=" + mesh}, []string{"a"}, fmt.Sprintf(external, "vault", "vault"), fmt.Sprintf(external, "lost", "other"))
	e.write("sds.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: sds, namespace: shop}
spec:
  hosts: [sds.shop.svc.cluster.local]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: 8234, name: grpc, protocol: GRPC}]
  endpoints: [{address: 127.0.0.1, ports: {grpc: %d}}]
`, l.Addr().(*net.TCPAddr).Port))
	e.presents(edgeHost("vault"), "first")
	if got, want := <-service.asked, "sds://vault"; got != want {
		t.Errorf("Envoy asked for %s, want %s", got, want)
	}
	e.presents(edgeHost("a"), "first")
	if cert, err := e.shown(t.Context(), edgeHost("lost")); err == nil {
		t.Errorf("a certificate of no service: %s", cert.Subject)
	}
	e.problem("credential-no-provider", "sds://other")
	renew("second")
	e.presents(edgeHost("vault"), "second")
	server.Stop()
	e.presents(edgeHost("vault"), "second")
	e.unrejected()
}
