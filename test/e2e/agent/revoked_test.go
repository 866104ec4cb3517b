package agent

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/testbed"
)

// TestRevoked: a certificate that its authority has revoked is refused by sidecars, and others are not.
func TestRevoked(t *testing.T) {
	b := newBed(t)
	b.TLSOnly()
	authority, err := certs.NewAuthority("plugged in")
	if err != nil {
		t.Fatal(err)
	}
	plugged, pair := t.TempDir(), authority.Pair()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(plugged, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("ca-cert.pem", pair.Cert)
	put("root-cert.pem", pair.Cert)
	put("ca-key.pem", pair.Key)
	if err := os.MkdirAll(b.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	// Agents and tests know the root by this file, which an authority of the control plane's own would write.
	if err := os.WriteFile(filepath.Join(b.StateDir, "root-cert.pem"), []byte(pair.Cert), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Env = []string{"ROOT_CA_DIR=" + plugged}
	if _, err := b.Write("web.yaml", fmt.Sprintf(rotated, webHost, b.port, b.backend.port)); err != nil {
		t.Fatal(err)
	}
	b.serve()
	o := b.certified("web")
	o.Env = append(o.Env, "CA_CRL="+filepath.Join(plugged, "ca-crl.pem"))
	agent := b.ready(o, testbed.Node{Name: "web", IP: "127.1.0.2"})
	a := &attacked{b, net.JoinHostPort("127.1.0.2", strconv.Itoa(b.backend.port)), []byte(pair.Cert)}
	good, stolen := a.identity("app"), a.identity("app")
	if got := a.send(as(stolen), get("/")); got != http.StatusOK {
		t.Fatalf("before it is revoked: %d", got)
	}
	leaf, err := x509.ParseCertificate(stolen.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	list, err := authority.Revoke(leaf.SerialNumber)
	if err != nil {
		t.Fatal(err)
	}
	put("ca-crl.pem", list)
	b.await("the certificate to be refused", func(context.Context) error {
		if got := a.send(as(stolen), get("/")); got != 0 {
			return fmt.Errorf("status %d", got)
		}
		return nil
	})
	if got := a.send(as(good), get("/")); got != http.StatusOK {
		t.Errorf("a certificate that is not revoked: %d", got)
	}
	put("ca-crl.pem", "nonsense")
	b.says(agent, "the last good lists stay in force")
	if got := a.send(as(stolen), get("/")); got != 0 {
		t.Errorf("with a list that cannot be read: %d", got)
	}
}
