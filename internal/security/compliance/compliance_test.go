package compliance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"
)

// TestApply: a server with a policy accepts only clients that support an allowed version and curve.
func TestApply(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		policy      Policy
		lowest      uint16
		highest     uint16
		curve       tls.CurveID
		established bool
	}{
		{None, tls.VersionTLS12, tls.VersionTLS13, tls.X25519, true},
		{FIPS, tls.VersionTLS12, tls.VersionTLS13, tls.CurveP256, true},
		{FIPS, tls.VersionTLS12, tls.VersionTLS13, tls.X25519, false},
		{FIPS, tls.VersionTLS13, tls.VersionTLS13, tls.CurveP256, false},
		{PQC, tls.VersionTLS12, tls.VersionTLS13, tls.X25519MLKEM768, true},
		{PQC, tls.VersionTLS12, tls.VersionTLS13, tls.X25519, false},
		{PQC, tls.VersionTLS12, tls.VersionTLS12, tls.X25519MLKEM768, false},
	} {
		server := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
		c.policy.Apply(server)
		client := &tls.Config{InsecureSkipVerify: true, MinVersion: c.lowest, MaxVersion: c.highest, CurvePreferences: []tls.CurveID{c.curve}}
		here, there := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- tls.Server(there, server).Handshake(); _ = there.Close() }()
		err := tls.Client(here, client).HandshakeContext(t.Context())
		_ = here.Close()
		if other := <-done; (err == nil) != c.established || (other == nil) != c.established {
			t.Errorf("%q with TLS %x to %x and %v: %v, %v", c.policy, c.lowest, c.highest, c.curve, err, other)
		}
	}
}

// TestParse: a name that is none of a policy is refused.
func TestParse(t *testing.T) {
	if p, err := Parse("fips-140-2"); p != FIPS || err != nil {
		t.Errorf("%q, %v", p, err)
	}
	if _, err := Parse("fips-140-3"); err == nil {
		t.Error("an unknown policy is accepted")
	}
}

// TestRestrict: a policy overrides the TLS settings of configuration.
func TestRestrict(t *testing.T) {
	given := Parameters{Min: 1, Max: 3, Curves: []string{"X25519"}, Ciphers: []string{"AES128-SHA"}}
	if p := FIPS.Restrict(given); p.Min != 2 || p.Max != 2 || p.Curves[0] != "P-256" || len(p.Ciphers) != 4 {
		t.Errorf("%+v", p)
	}
	if p := PQC.Restrict(given); p.Min != 3 || p.Curves[0] != "X25519MLKEM768" || len(p.Ciphers) > 0 {
		t.Errorf("%+v", p)
	}
	if p := None.Restrict(given); p.Min != 1 || p.Ciphers[0] != "AES128-SHA" {
		t.Errorf("%+v", p)
	}
}
