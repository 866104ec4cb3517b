package ca

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	security "istio.io/api/security/v1alpha1"

	"github.com/pilotmesh/pilot/internal/security/admission"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

func keepLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// revoke writes the list of an authority that revokes certificates into a folder.
func revoke(t *testing.T, dir string, a *Authority, certs ...*x509.Certificate) {
	t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
	for _, c := range certs {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.signer)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca-crl.pem"), pem.EncodeToMemory(&pem.Block{Type: crlBlock, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRevokedCallerIsNotSigned: a caller with a revoked certificate gets no other one over the connection that it has had before, even if
// the door lets it in.
func TestRevokedCallerIsNotSigned(t *testing.T) {
	for name, guarded := range map[string]bool{"by the door": true, "by the authority": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			plug(t, dir, selfSigned(t, time.Hour, 0, time.Now()), layouts()[0], time.Now())
			var changes atomic.Int32
			k := keep(t, Settings{Folder: Folder(dir), Changed: func() { changes.Add(1) }})
			door := &admission.Door{Log: keepLog(), Callers: identity.Any{identity.Certificates{TrustDomains: func() []string { return []string{"cluster.local"} }, Now: time.Now}}}
			if guarded {
				door.Revoked = k.Revoked
			}
			var last atomic.Value
			ask := calling(t, k.Keeper, &Service{Door: door, Signer: k.Keeper, Limits: k.Limits(), Observe: func(o Outcome) { last.Store(o) }})
			leaf, err := ask()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ask(); err != nil {
				t.Fatal(err)
			}
			revoke(t, dir, k.Authority(), leaf)
			eventually(t, "the list is in force", func() bool { return changes.Load() > 0 })
			if _, err := ask(); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "revoked") {
				t.Errorf("it is answered %v", err)
			}
			if want := map[bool]Outcome{true: Unauthenticated, false: Failed}[guarded]; last.Load() != want {
				t.Errorf("it is %v, want %v", last.Load(), want)
			}
			// While the file is being written, the certificate stays revoked.
			for _, text := range []string{"", "-----BEGIN X509 CRL-----\nMIIB"} {
				if err := os.WriteFile(filepath.Join(dir, "ca-crl.pem"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				eventually(t, "half a list is a problem", func() bool { return strings.Contains(k.said(), "revocation list") })
				if _, err := ask(); err == nil {
					t.Errorf("with the list %q it is certified again", text)
				}
			}
		})
	}
}

// calling connects to a service with a certificate that the authority has issued, and returns a function that asks for another one over
// this connection. The function returns the certificate of the connection.
func calling(t *testing.T, k *Keeper, service *Service) func() (*x509.Certificate, error) {
	t.Helper()
	key := ecKey(t)
	chain, err := k.Authority().Issue(&key.PublicKey, Subject{Identity: reviews}, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	own := &tls.Certificate{PrivateKey: key}
	for _, text := range chain[:len(chain)-1] {
		b, _ := pem.Decode([]byte(text))
		own.Certificate = append(own.Certificate, b.Bytes)
	}
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(k.TLS())))
	service.Register(g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { _ = g.Serve(l); close(served) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: k.Authority().Pool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil },
	})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); g.Stop(); <-served })
	return func() (*x509.Certificate, error) {
		if _, err := security.NewIstioCertificateServiceClient(conn).CreateCertificate(t.Context(), &security.IstioCertificateRequest{Csr: request(t, ecKey(t), &x509.CertificateRequest{})}); err != nil {
			return nil, err
		}
		return x509.ParseCertificate(own.Certificate[0])
	}
}
