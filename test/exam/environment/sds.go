package environment

import (
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/test/exam/pki"
	"github.com/pilotmesh/pilot/test/kit/certs"
)

const secretType = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// sdsServer plays the agent's secret service: it answers the well-known names `default` and `ROOTCA`, and the file-based names
// `file-cert:CERT~KEY` and `file-root:CA` (`file-root:system` is the exam's public CA). Other names stay unanswered.
type sdsServer struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	keys     *pki.Material
	dir      string // where /etc/exam lives for the runner
	mu       sync.Mutex
	identity certs.Pair
	nonce    atomic.Int64
}

func serveSDS(socket string, p *pki.Material, dir string) (*sdsServer, func(), error) {
	_ = os.Remove(socket) // Listen reports failures
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, nil, err
	}
	if err := os.Chmod(socket, 0o777); err != nil {
		return nil, nil, err
	}
	s := &sdsServer{keys: p, dir: dir}
	g := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(g, s)
	go func() { _ = g.Serve(l) }() // it ends with Stop
	return s, g.Stop, nil
}

// setIdentity chooses the workload certificate of the next case.
func (s *sdsServer) setIdentity(id certs.Identity) error {
	kp, err := s.keys.Mesh.Issue(id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.identity = kp
	return nil
}

func inline(s string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: s}}
}

func certificate(kp certs.Pair) *tlsv3.Secret_TlsCertificate {
	return &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline(kp.Cert), PrivateKey: inline(kp.Key)}}
}

func validation(ca string) *tlsv3.Secret_ValidationContext {
	return &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(ca)}}
}

// find makes the secret of a name, or nil.
func (s *sdsServer) find(name string) *tlsv3.Secret {
	s.mu.Lock()
	identity := s.identity
	s.mu.Unlock()
	switch {
	case name == "default":
		return &tlsv3.Secret{Name: name, Type: certificate(identity)}
	case name == "ROOTCA":
		return &tlsv3.Secret{Name: name, Type: validation(s.keys.Mesh.Pair().Cert)}
	case name == "file-root:system":
		return &tlsv3.Secret{Name: name, Type: validation(s.keys.Public.Pair().Cert)}
	case strings.HasPrefix(name, "file-root:"):
		if b, ok := s.file(strings.TrimPrefix(name, "file-root:")); ok {
			return &tlsv3.Secret{Name: name, Type: validation(b)}
		}
	case strings.HasPrefix(name, "file-cert:"):
		c, k, _ := strings.Cut(strings.TrimPrefix(name, "file-cert:"), "~")
		cert, ok1 := s.file(c)
		key, ok2 := s.file(k)
		if ok1 && ok2 {
			return &tlsv3.Secret{Name: name, Type: certificate(certs.Pair{Cert: cert, Key: key})}
		}
	}
	return nil
}

// file reads one of the exam's files only.
func (s *sdsServer) file(path string) (string, bool) {
	name, ok := strings.CutPrefix(path, "/etc/exam/")
	if !ok || strings.Contains(name, "/") {
		return "", false
	}
	b, err := os.ReadFile(s.dir + "/" + name)
	return string(b), err == nil
}

func (s *sdsServer) StreamSecrets(st secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	for {
		req, err := st.Recv()
		if err != nil {
			return err
		}
		if req.ResponseNonce != "" {
			continue // ACK or NACK; names of a stream do not change
		}
		n := strconv.FormatInt(s.nonce.Add(1), 10)
		resp := &discoveryv3.DiscoveryResponse{TypeUrl: secretType, VersionInfo: n, Nonce: n}
		for _, name := range req.ResourceNames {
			if sec := s.find(name); sec != nil {
				a, err := anypb.New(sec)
				if err != nil {
					return err
				}
				resp.Resources = append(resp.Resources, a)
			}
		}
		if len(resp.Resources) == 0 {
			continue
		}
		if err := st.Send(resp); err != nil {
			return err
		}
	}
}

func (s *sdsServer) DeltaSecrets(st secretv3.SecretDiscoveryService_DeltaSecretsServer) error {
	for {
		req, err := st.Recv()
		if err != nil {
			return err
		}
		n := strconv.FormatInt(s.nonce.Add(1), 10)
		resp := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: secretType, SystemVersionInfo: n, Nonce: n}
		for _, name := range req.ResourceNamesSubscribe {
			if sec := s.find(name); sec != nil {
				a, err := anypb.New(sec)
				if err != nil {
					return err
				}
				resp.Resources = append(resp.Resources, &discoveryv3.Resource{Name: name, Version: n, Resource: a})
			}
		}
		if len(resp.Resources) == 0 {
			continue
		}
		if err := st.Send(resp); err != nil {
			return err
		}
	}
}
