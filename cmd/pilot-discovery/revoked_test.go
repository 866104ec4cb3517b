package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// authority is a certificate authority whose files are plugged into a control plane: a root that signs nothing but an intermediate, and the
// intermediate.
type authority struct {
	t                 *testing.T
	dir               string
	root, between     *x509.Certificate
	rootKey, ownKey   crypto.Signer
	revokedByRoot     []x509.RevocationListEntry
	revokedByOwn      []x509.RevocationListEntry
	lists, everListed int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.root, a.rootKey = a.certify("root", nil, nil)
	a.between, a.ownKey = a.certify("between", a.root, a.rootKey)
	key, err := x509.MarshalPKCS8PrivateKey(a.ownKey)
	if err != nil {
		t.Fatal(err)
	}
	a.write("ca-cert.pem", "CERTIFICATE", a.between.Raw)
	a.write("cert-chain.pem", "CERTIFICATE", a.between.Raw)
	a.write("root-cert.pem", "CERTIFICATE", a.root.Raw)
	a.write("ca-key.pem", "PRIVATE KEY", key)
	return a
}

func (a *authority) write(name, kind string, blocks ...[]byte) {
	a.t.Helper()
	var text []byte
	for _, b := range blocks {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b})...)
	}
	tmp := filepath.Join(a.dir, "."+name)
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(a.dir, name)); err != nil {
		a.t.Fatal(err)
	}
}

// certify makes a certificate that may sign others.
func (a *authority) certify(name string, by *x509.Certificate, signer crypto.Signer) (*x509.Certificate, crypto.Signer) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.everListed++
	c := &x509.Certificate{
		SerialNumber: big.NewInt(a.everListed), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if by == nil {
		by, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return made, key
}

// revoke adds certificates to the revocation lists of their issuers.
func (a *authority) revoke(certs ...*x509.Certificate) {
	a.t.Helper()
	for _, c := range certs {
		entry := x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()}
		if c == a.between {
			a.revokedByRoot = append(a.revokedByRoot, entry)
		} else {
			a.revokedByOwn = append(a.revokedByOwn, entry)
		}
	}
	list := func(entries []x509.RevocationListEntry, by *x509.Certificate, signer crypto.Signer) []byte {
		a.lists++
		der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
			Number: big.NewInt(a.lists), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour), RevokedCertificateEntries: entries,
		}, by, signer)
		if err != nil {
			a.t.Fatal(err)
		}
		return der
	}
	a.write("ca-crl.pem", "X509 CRL", list(a.revokedByRoot, a.root, a.rootKey), list(a.revokedByOwn, a.between, a.ownKey))
}

// TestRevocation: when a certificate is revoked, or one that vouches for it, the streams of its connections end, and its holder is let in by
// no connection: not for a certificate, not with a token beside it. Another workload is not affected.
func TestRevocation(t *testing.T) {
	a := newAuthority(t)
	t.Setenv("ROOT_CA_DIR", a.dir)
	m := startPlugged(t, filepath.Join(a.dir, "root-cert.pem"))
	token := m.token("shop", "web", time.Hour)
	stolen, err := m.certify(m.dial(nil), token, time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	good, err := m.certify(m.dial(nil), token, time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	thief, owner := m.dial(stolen), m.dial(good)
	theirs, err := m.ask(thief, "", webNode, nil)
	if err != nil {
		t.Fatal(err)
	}
	own, err := m.ask(owner, "", webNode, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.revoke(stolen.Leaf)
	ends(t, "the revoked certificate", theirs)
	for _, with := range []string{"", token} {
		if _, err := m.certify(thief, with, time.Hour, nil); err == nil || !strings.Contains(m.said(), "revoked") {
			t.Errorf("it is certified again: %v", err)
		}
		if _, err := m.ask(thief, with, webNode, nil); err == nil {
			t.Error("it is let in again")
		}
	}
	if _, err := m.ask(m.dial(nil), token, webNode, nil); err != nil {
		t.Errorf("the token alone: %v", err)
	}
	if _, err := m.certify(owner, "", time.Hour, nil); err != nil {
		t.Errorf("another certificate: %v", err)
	}
	a.revoke(a.between)
	ends(t, "the revoked authority", own)
	if _, err := m.certify(owner, "", time.Hour, nil); err == nil {
		t.Error("what a revoked authority has signed is certified again")
	}
}

// TestPagesOfANodeID: a proxy does not take the node id of another namespace's, and pages of a namespace show none of another one.
func TestPagesOfANodeID(t *testing.T) {
	m := startSecure(t)
	shop, bank := m.token("shop", "web", time.Hour), m.token("bank", "thief", time.Hour)
	if _, err := m.ask(m.dial(nil), shop, webNode, nil); err != nil {
		t.Fatal(err)
	}
	for _, fields := range []map[string]any{nil, {"NAMESPACE": "bank"}, {"NAMESPACE": "shop"}, {"NAMESPACE": ""}} {
		if _, err := m.ask(m.dial(nil), bank, webNode, fields); status.Code(err) != codes.PermissionDenied {
			t.Errorf("the node id of shop with %v: %v", fields, err)
		}
	}
	if _, err := m.ask(m.dial(nil), bank, strings.ReplaceAll(webNode, "shop", "bank"), map[string]any{"NAMESPACE": "bank"}); err != nil {
		t.Errorf("its own: %v", err)
	}
	for token, want := range map[string]string{shop: "web-1.shop", bank: "web-1.bank"} {
		pages, err := discoveryv3.NewAggregatedDiscoveryServiceClient(m.dial(nil)).DeltaAggregatedResources(m.with(token))
		if err != nil {
			t.Fatal(err)
		}
		if err := pages.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "istio.io/debug", ResourceNamesSubscribe: []string{"syncz"}}); err != nil {
			t.Fatal(err)
		}
		r, err := pages.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if body := string(r.Resources[0].Resource.Value); strings.Count(body, `"proxy":`) != 1 || !strings.Contains(body, want) {
			t.Errorf("the workload of %s is shown %s", want, body)
		}
	}
}
