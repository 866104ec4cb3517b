package analyze_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/explain/analyze"
)

// revoking is a revocation list that revokes nothing.
func revoking(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SubjectKeyId: []byte("a"), KeyUsage: x509.KeyUsageCRLSign}
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}, of, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}))
}

const revoked = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec: {hosts: [web.example.com], resolution: DNS, ports: [{number: 443, name: https, protocol: HTTPS}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec:
  host: web.example.com
  trafficPolicy:
    tls: {mode: SIMPLE, caCertificates: /etc/roots.pem, caCrl: /etc/client.crl}
    portLevelSettings: [{port: {number: 443}, tls: {mode: MUTUAL, clientCertificate: /c, privateKey: /k, caCertificates: /etc/roots.pem, caCrl: /etc/port.crl}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  ingress: [{port: {number: 9080, name: https, protocol: HTTPS}, tls: {mode: MUTUAL, serverCertificate: /c, privateKey: /k, caCertificates: /a, caCrl: /etc/server.crl}}]
`

// TestRevocationLists: a file with a revocation list has a problem if it can be read here and has none. A file that is not here has none, like
// the files of certificates, and so has every file where nothing may be read.
func TestRevocationLists(t *testing.T) {
	good := revoking(t)
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string // the fields
	}{
		{"none is here", nil, nil},
		{"good ones", map[string]string{"/etc/client.crl": good, "/etc/port.crl": good + good, "/etc/server.crl": good}, nil},
		{"broken roots beside it", map[string]string{"/etc/roots.pem": "x", "/a": "x", "/c": "x"}, nil},
		{"one without PEM", map[string]string{"/etc/client.crl": "x", "/etc/port.crl": good}, []string{"spec.trafficPolicy.tls.caCrl"}},
		{"empty ones", map[string]string{"/etc/port.crl": "", "/etc/server.crl": ""}, []string{"spec.trafficPolicy.portLevelSettings[0].tls.caCrl", "spec.ingress[0].tls.caCrl"}},
		{"half of one", map[string]string{"/etc/server.crl": good[:60]}, []string{"spec.ingress[0].tls.caCrl"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := analyze.New()
			a.Read = func(name string) ([]byte, error) {
				if text, ok := c.files[name]; ok {
					return []byte(text), nil
				}
				return nil, fs.ErrNotExist
			}
			a.File("revoked.yaml", []byte(revoked))
			var got []string
			for _, p := range a.AllProblems("cluster.local") {
				if strings.Contains(p.Reason, "as it is on this machine") {
					got = append(got, p.Field)
					if p.Code != "credential-invalid" || p.Position.Line == 0 {
						t.Errorf("%v", p)
					}
				}
			}
			if strings.Join(got, " ") != strings.Join(c.want, " ") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	a := analyze.New()
	a.File("revoked.yaml", []byte(revoked))
	for _, p := range a.AllProblems("cluster.local") {
		if strings.Contains(p.Reason, "as it is on this machine") {
			t.Errorf("nothing may be read: %v", p)
		}
	}
}
