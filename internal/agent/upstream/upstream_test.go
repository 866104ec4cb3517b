package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// token returns an unsigned token with the claims.
func token(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// TestShows: the agent shows a token that is valid, or else a certificate that is; if there is neither, it says why, and what to do.
func TestShows(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	dir := t.TempDir()
	roots := filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	good, old := token(fmt.Sprintf(`{"exp":%d}`, now.Add(time.Hour).Unix())), token(fmt.Sprintf(`{"exp":%d}`, now.Add(-time.Hour).Unix()))
	for _, c := range []struct {
		name, token string
		valid       time.Duration // of the certificate; 0 for none
		certificate bool
		want        string
	}{
		{"a token", good, 0, false, "token"},
		{"both, the token first", good, time.Hour, false, "token"},
		{"both, the certificate first", good, time.Hour, true, "certificate"},
		{"an expired certificate", good, -time.Hour, true, "token"},
		{"an expired token", old, time.Hour, false, "certificate"},
		{"an opaque token", "opaque", 0, false, "token"},
		{"no token", "", time.Hour, false, "certificate"},
		{"an expired token alone", old, 0, true, "has expired at " + now.Add(-time.Hour).UTC().Format(time.RFC3339) + "; write a new one there (pilotctl workload entry configure"},
		{"both expired", old, -time.Hour, true, "its certificate has expired at "},
		{"nothing", "", 0, true, "does not exist; mount one there"},
	} {
		d := &Dialer{Address: server.Listener.Addr().String(), RootsFile: roots, TokenFile: filepath.Join(dir, "none")}
		if c.token != "" {
			d.TokenFile = filepath.Join(dir, "token")
			if err := os.WriteFile(d.TokenFile, []byte(c.token), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d.Certificate = func() *tls.Certificate {
			if c.valid == 0 {
				return nil
			}
			return &tls.Certificate{Leaf: &x509.Certificate{NotAfter: now.Add(c.valid)}}
		}
		conn, err := d.DialWith(c.certificate)
		if err != nil {
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "e30.") {
				t.Errorf("%s: %v; want %s", c.name, err, c.want)
			}
			continue
		}
		if conn.Shows != c.want {
			t.Errorf("%s: the agent shows a %s; want %s", c.name, conn.Shows, c.want)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

func FuzzExpiry(f *testing.F) {
	for _, text := range []string{"", "a.b.c", token(`{"exp":1}`), token(`{"exp":1e300}`), token(`{"exp":-1}`), token(`{"exp":"1"}`), token(`[]`)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if at := expiry(text); !at.IsZero() && (at.Year() < 1970 || at.Year() > 9999) {
			t.Errorf("%q expires at %v", text, at)
		}
	})
}
