package agent

import (
	"cmp"
	"context"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
	security "istio.io/api/security/v1alpha1"

	"github.com/pilotmesh/pilot/internal/agent/boot"
	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/disk"
	"github.com/pilotmesh/pilot/internal/agent/lastgood"
	"github.com/pilotmesh/pilot/internal/agent/relay"
	"github.com/pilotmesh/pilot/internal/agent/secret"
	"github.com/pilotmesh/pilot/internal/agent/upstream"
	"github.com/pilotmesh/pilot/internal/run"
)

// secretsSocket returns the path of the socket from which Envoy gets certificates and keys. It is Istio's path, or a path in
// the directory of the bootstrap if that is not the default, so that several agents can run on one host.
func secretsSocket(s *config.Settings) string {
	own := s.Proxy.GetConfigPath()
	switch {
	case s.IdentitySocket != "":
		return config.IdentityDir + "/" + s.IdentitySocket
	case own == "" || samePath(own, config.DefaultConfigPath):
		return config.IdentityDir + "/socket"
	}
	return filepath.Join(own, "secrets.sock")
}

// mountedFiles returns the files of the certificate that is mounted for the workload; empty if there is none. Files that the agent itself keeps there
// do not count.
func mountedFiles(s *config.Settings) (certificate, key, roots string) {
	if s.Certificates.Mounted {
		return secret.MountedFiles()
	}
	return secret.MountedFiles(s.Certificates.Output, s.Certificates.Provided)
}

// hasCertificate reports whether the workload may have a certificate of the mesh: another program serves secrets, certificate files are
// mounted, or there is a certificate authority.
func hasCertificate(s *config.Settings) bool {
	mounted, _, _ := mountedFiles(s)
	return s.IdentitySocket != "" || mounted != "" || s.Certificates.Authority != "" && !s.Certificates.Mounted
}

// otherAuthority reports whether the certificates of the workload come from an authority other than the control plane. If CA_ADDR is another address of
// the control plane, the answer is wrong, and requests name the workload without need.
func otherAuthority(s *config.Settings) bool {
	mounted, _, _ := mountedFiles(s)
	ca := s.Certificates.Authority
	return s.IdentitySocket != "" || mounted != "" || ca != "" && serverAt(ca) != serverAt(s.Proxy.GetDiscoveryAddress())
}

// serverAt returns a text that all addresses of a server share: of a Service of a cluster, the name without the domain of the cluster and without a
// port, because the control plane serves xDS and certificates at several ports; of another server, the address.
func serverAt(address string) string {
	host, _, err := net.SplitHostPort(address)
	if before, _, ok := strings.Cut(host+".", ".svc."); ok && err == nil {
		return before
	}
	return address
}

// relaySocket returns the path of the socket at which the relay serves Envoy.
func relaySocket(s *config.Settings) string { return filepath.Join(s.Proxy.GetConfigPath(), "XDS") }

// lastGoodFile is the name of the file with the last known good configuration, beside the bootstrap.
const lastGoodFile = "last-known-good"

// samePath reports whether two paths are equal when resolved from the agent's working directory.
func samePath(a, b string) bool {
	first, err := filepath.Abs(a)
	if err != nil {
		return false
	}
	second, err := filepath.Abs(b)
	return err == nil && first == second
}

// credentials is the source of the agent's own certificate and of the roots of the mesh. Sources that are not used are nil or empty.
type credentials struct {
	issued                  *secret.Issued
	mounted                 *secret.Files // if the agent serves secrets from files
	certificate, key, roots string        // files
	provided                string        // a folder with the certificate and key that are shown until the authority has issued one (PROV_CERT)
}

// pair returns the certificate of the workload; nil if there is none.
func (c *credentials) pair() *tls.Certificate {
	if c.issued != nil {
		if p := c.issued.Certificate(); p != nil || c.provided == "" {
			return p
		}
		certificate, key, _ := secret.KeptFiles(c.provided)
		return readPair(certificate, key)
	}
	return readPair(c.certificate, c.key)
}

// readPair reads a certificate and its key; nil if there are none. Faults in them are reported when Envoy asks for them.
func readPair(certificate, key string) *tls.Certificate {
	if certificate == "" {
		return nil
	}
	chain, err := disk.Read(certificate)
	if err != nil {
		return nil
	}
	private, err := disk.Read(key)
	if err != nil {
		return nil
	}
	pair, err := tls.X509KeyPair(chain, private)
	if err != nil {
		return nil
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil
		}
	}
	return &pair
}

// known returns the roots of the mesh, as PEM.
func (c *credentials) known() []byte {
	if c.issued != nil {
		return c.issued.Roots()
	}
	text, err := disk.Read(c.roots)
	if err != nil {
		return nil
	}
	return text
}

// serveSecrets adds the server of certificates and keys to the group, unless another program serves them. own is set to the source of the agent's
// own certificate.
func serveSecrets(ctx context.Context, group *run.Group, s *config.Settings, c boot.Config, own *credentials, dialer *upstream.Dialer, log *slog.Logger) (*secret.Board, error) {
	board := secret.NewBoard(log)
	group.Add(run.Actor{Name: "secrets", Run: board.Run})
	files := secret.NewFiles(board, log)
	own.certificate, own.key, own.roots = mountedFiles(s)
	if own.certificate == "" && !s.Certificates.Mounted && s.IdentitySocket == "" && s.Certificates.Authority != "" {
		own.provided = cmp.Or(s.Certificates.Provided, s.Certificates.Output)
		own.issued = issued(s, board, own, log)
		files.Except = own.issued.Provides
		group.Add(run.Actor{Name: "workload certificate", Run: own.issued.Run})
	}
	group.Add(run.Actor{Name: "report of missing secrets", Run: secret.NewReporter(board, calls(dialer), c.Node, log).Run})
	if s.IdentitySocket != "" {
		log.Info("another program serves secrets (WORKLOAD_IDENTITY_SOCKET_FILE)", "socket", c.SecretsSocket)
		return board, nil
	}
	l, err := secret.Listen(ctx, c.SecretsSocket)
	if err != nil {
		return nil, err
	}
	own.mounted = files
	server := grpc.NewServer(run.AllowPings())
	secret.NewServer(board).Register(server)
	group.Add(run.Actor{Name: "certificate files", Run: files.Run})
	// The group stops this server after Envoy has ended, so no client is left to wait for.
	group.Add(run.GRPC("secrets' socket", l, server, func(context.Context) {}, 0))
	return board, nil
}

// keep adds the last known good configuration to the group.
func keep(group *run.Group, s *config.Settings, c boot.Config, log *slog.Logger) *lastgood.Store {
	store := lastgood.Open(filepath.Join(s.Proxy.GetConfigPath(), lastGoodFile), c.Node.GetId(), log)
	group.Add(run.Actor{Name: "last known good configuration", Run: store.Run})
	return store
}

// serveRelay adds the relay of xDS to the group.
func serveRelay(ctx context.Context, group *run.Group, c boot.Config, o relay.Options) (*relay.Relay, error) {
	l, err := secret.Listen(ctx, c.Relay)
	if err != nil {
		return nil, err
	}
	r := relay.New(o)
	group.Add(run.GRPC("relay of xDS", l, r.Server(), func(context.Context) {}, 0))
	return r, nil
}

// calls returns a function that opens a connection to the control plane.
func calls(d *upstream.Dialer) func() (*grpc.ClientConn, error) {
	return func() (*grpc.ClientConn, error) {
		conn, err := d.Dial()
		if err != nil {
			return nil, err
		}
		return conn.ClientConn, nil
	}
}

// discoveryDialer returns the dialer for the control plane.
func discoveryDialer(s *config.Settings, own *credentials) *upstream.Dialer {
	return &upstream.Dialer{
		Address: s.Proxy.GetDiscoveryAddress(), RootsFile: s.Certificates.DiscoveryRoots, ServerName: s.Certificates.ServerName,
		TokenFile: s.Certificates.TokenFile, Certificate: own.pair, Roots: own.known, Compliance: s.Certificates.Compliance, Plain: !s.TLS,
	}
}

// issued returns the provider of certificates from the authority.
func issued(s *config.Settings, board *secret.Board, own *credentials, log *slog.Logger) *secret.Issued {
	o := s.Certificates
	dialer := &upstream.Dialer{
		Address: o.Authority, RootsFile: o.AuthorityRoots, ServerName: o.ServerName, TokenFile: o.TokenFile, Roots: own.known, Compliance: o.Compliance,
		Certificate: func() *tls.Certificate {
			certificate, key, _ := secret.KeptFiles(o.Provided)
			if p := readPair(certificate, key); o.Provided != "" && p != nil && time.Now().Before(p.Leaf.NotAfter) {
				return p
			}
			return own.pair()
		},
	}
	curve := elliptic.P256()
	if o.Large {
		curve = elliptic.P384()
	}
	return secret.NewIssued(board, secret.IssueOptions{
		TrustDomain: o.TrustDomain, Namespace: s.Namespace, Account: s.ServiceAccount, Valid: o.TTL, Grace: o.Grace,
		RSABits: o.RSABits, Curve: curve, PKCS8: o.PKCS8, Output: o.Output, Provided: o.Provided, CRL: o.Revoked, Log: log,
		Request: func(ctx context.Context, csr string, valid time.Duration) ([]string, error) {
			return requestCertificate(ctx, dialer, o.Provided != "", &security.IstioCertificateRequest{
				Csr: csr, ValidityDuration: int64(valid / time.Second), Metadata: requestMetadata(s.ClusterID, o.Signer),
			})
		},
	})
}

// requestCertificate asks the authority for a certificate. It shows the token first, because only a token can prove that the service
// account still exists; if certificate is true, it shows the present certificate first. If the first is refused, it shows the other one.
func requestCertificate(ctx context.Context, d *upstream.Dialer, certificate bool, request *security.IstioCertificateRequest) ([]string, error) {
	conn, err := d.DialWith(certificate)
	if err != nil {
		return nil, err
	}
	chain, err := ask(ctx, conn, d.Address, request)
	if err == nil || ctx.Err() != nil {
		return chain, err
	}
	other, dialErr := d.DialWith(!certificate)
	if dialErr != nil {
		return nil, err
	}
	if other.Shows == conn.Shows {
		return nil, errors.Join(err, other.Close())
	}
	chain, otherErr := ask(ctx, other, d.Address, request)
	if otherErr != nil {
		return nil, fmt.Errorf("with the %s: %w; with the %s: %w", conn.Shows, err, other.Shows, otherErr)
	}
	return chain, nil
}

// requestMetadata is the metadata of a request for a certificate: the cluster that issues the agent's tokens, and the requested signer.
func requestMetadata(cluster, signer string) *structpb.Struct {
	m := &structpb.Struct{Fields: map[string]*structpb.Value{"ClusterID": structpb.NewStringValue(cluster)}}
	if signer != "" {
		m.Fields["CertSigner"] = structpb.NewStringValue(signer)
	}
	return m
}

// ask asks the authority over a connection, and closes it.
func ask(ctx context.Context, conn *upstream.Connection, address string, request *security.IstioCertificateRequest) ([]string, error) {
	defer conn.Close() //nolint:errcheck // nothing is buffered
	answer, err := security.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return answer.GetCertChain(), nil
}
