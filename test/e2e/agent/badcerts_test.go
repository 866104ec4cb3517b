package agent

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/testbed"
)

// badSecret is a Secret that proxies must not get in the place of a good one.
type badSecret struct {
	host string
	make func(e *edge, host string) certs.Pair
	// says are parts of the Problem.
	says []string
}

func badSecrets() []badSecret {
	return []badSecret{
		{"mismatch", func(e *edge, host string) certs.Pair {
			return certs.Pair{Cert: e.pair(host).Cert, Key: e.pair(host).Key}
		}, []string{"private key does not match public key"}},
		{"expired", func(e *edge, host string) certs.Pair {
			return e.pair(host, func(c *x509.Certificate) {
				c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
			})
		}, []string{"has expired on"}},
		{"short", func(e *edge, host string) certs.Pair { return shortKey(e.T, host) }, []string{"its RSA key has 1024 bits"}},
		{"order", func(e *edge, host string) certs.Pair {
			p := e.pair(host)
			return certs.Pair{Cert: e.authority.Pair().Cert + p.Cert, Key: p.Key}
		}, []string{"belongs to certificate 2 in it"}},
		{"nameless", func(e *edge, host string) certs.Pair {
			return e.pair(host, func(c *x509.Certificate) { c.DNSNames, c.URIs = nil, nil })
		}, []string{"the certificate names no host"}},
		{"torn", func(e *edge, host string) certs.Pair {
			p := e.pair(host)
			return certs.Pair{Cert: p.Cert[:len(p.Cert)/2], Key: p.Key}
		}, []string{"PEM blocks cannot be read"}},
	}
}

// pair issues a certificate for the host of a Secret, changed before it is signed.
func (e *edge) pair(secret string, changes ...func(*x509.Certificate)) certs.Pair {
	e.Helper()
	p, err := e.authority.Issue(certs.Identity{Name: "bad", Hosts: []string{edgeHost(secret)}}, changes...)
	if err != nil {
		e.Fatal(err)
	}
	return p
}

// shortKey is a certificate with an RSA key of 1024 bits, which signs itself.
func shortKey(t *testing.T, secret string) certs.Pair {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // that it is short is the point
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bad"}, DNSNames: []string{edgeHost(secret)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return certs.Pair{Cert: text("CERTIFICATE", der), Key: text("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))}
}

// TestBadSecrets: a certificate with a mistake does not replace the last good one, a Problem names the mistake and the file, Envoy rejects
// nothing, and another host does not notice. So it is when the Secret goes. The next good one is used at once.
func TestBadSecrets(t *testing.T) {
	names := []string{"steady", "gone"}
	for _, bad := range badSecrets() {
		names = append(names, bad.host)
	}
	e := newEdge(t, nil, names)
	for _, name := range names {
		e.presents(edgeHost(name), "first")
	}
	client := e.over(edgeHost("steady"))
	e.serves(edgeHost("steady"), http.StatusOK)
	load := testbed.StartAsking(t.Context(), 2, 20, func(ctx context.Context, _ *http.Client) (string, error) {
		resp, err := e.answer(ctx, client, edgeHost("steady"))
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		return "web", err
	})
	for _, bad := range badSecrets() {
		p := bad.make(e, bad.host)
		e.put(bad.host, p.Cert, p.Key)
		e.problem(append(bad.says, "credential-invalid", filepath.Join("shop", bad.host))...)
	}
	if err := os.RemoveAll(filepath.Join(e.secrets, "shop", "gone")); err != nil {
		t.Fatal(err)
	}
	e.problem("there is no folder shop/gone")
	e.issue("steady", "second") // it comes behind everything before
	e.presents(edgeHost("steady"), "second")
	for _, name := range names[1:] {
		e.presents(edgeHost(name), "first")
	}
	for _, bad := range badSecrets() {
		e.issue(bad.host, "third")
		e.presents(edgeHost(bad.host), "third")
	}
	if tally := load.Stop(); tally.Failures > 0 || tally.Answers["web"] == 0 {
		t.Errorf("%d requests to the other host succeeded and %d failed, the first one: %v", tally.Answers["web"], tally.Failures, tally.First)
	}
	e.unrejected()
}

// TestBadRoots: a bundle of authorities with one block that cannot be read lets in the clients of the others, and a Problem says so. A bundle without any
// good block changes nothing. A client without a certificate is never let in.
func TestBadRoots(t *testing.T) {
	mutual := fmt.Sprintf("{port: {number: 443, name: m, protocol: HTTPS}, hosts: [%s], tls: {mode: MUTUAL, credentialName: m}}", edgeHost("m"))
	e := newEdge(t, nil, nil, mutual)
	e.issue("m", "first")
	roots := func(text string) { e.file("m", "ca.crt", text) }
	roots(e.authority.Pair().Cert)
	e.admits("m", true)
	bad := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("no certificate")}))
	roots(bad + e.authority.Pair().Cert)
	e.problem("1 of its 2 PEM blocks are not used", "credential-invalid", filepath.Join("shop", "m", "ca.crt"))
	e.admits("m", true)
	roots(bad)
	e.problem("it has no certificate that can be read", "the last good version stays in force", filepath.Join("shop", "m", "ca.crt"))
	e.admits("m", true)
	e.admits("m", false)
	e.unrejected()
}

// admits waits until the host of a Secret lets in a client with a certificate, or wants that it does not let in one without.
func (e *edge) admits(secret string, certificate bool) {
	e.Helper()
	config := e.tlsTo(edgeHost(secret))
	if !certificate {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: patience}
		if resp, err := e.answer(e.Context(), client, edgeHost(secret)); err == nil {
			e.Errorf("a client without certificate gets %d", resp.StatusCode)
		}
		return
	}
	own, err := e.pair("client").TLS()
	if err != nil {
		e.Fatal(err)
	}
	config.Certificates = append(config.Certificates, own)
	e.await("an answer for a client with a certificate", func(ctx context.Context) error {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: patience}
		resp, err := e.answer(ctx, client, edgeHost(secret))
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		return err
	})
}
