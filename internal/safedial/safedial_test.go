package safedial

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"
)

// TestCheck checks which addresses may be connected to.
func TestCheck(t *testing.T) {
	blocked := []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
	for address, allowed := range map[string]bool{
		"10.8.0.1:443": true, "[2001:db8::1]:443": true, "192.0.2.1:80": true,
		"10.9.1.1:443": false, "127.0.0.1:80": false, "127.9.9.9:80": false, "[::1]:80": false, "0.0.0.0:80": false, "[::]:80": false,
		"169.254.169.254:80": false, "[fe80::1%eth0]:80": false, "224.0.0.1:80": false, "[ff02::1]:80": false, "[fd00:ec2::254]:80": false,
		"100.100.100.200:80": false, "[::ffff:127.0.0.1]:80": false, "[64:ff9b::7f00:1]:80": false, "[2002:7f00:1::]:80": false,
		"[64:ff9b::a09:101]:80": false, "0.1.2.3:80": false, "nonsense": false,
	} {
		if err := (Options{Blocked: blocked}).check(address); (err == nil) != allowed {
			t.Errorf("%s: %v, want allowed %t", address, err, allowed)
		}
	}
}

// TestRedirect checks that a redirect does not lead where a client does not connect to, and does not leave TLS.
func TestRedirect(t *testing.T) {
	inner := httptest.NewServer(http.NotFoundHandler())
	defer inner.Close()
	outer := httptest.NewTLSServer(http.RedirectHandler(inner.URL, http.StatusFound))
	defer outer.Close()
	get := func(o Options, url string) error {
		o.Timeout = time.Second
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := o.Client().Do(q)
		if err == nil {
			err = a.Body.Close()
		}
		return err
	}
	if err := get(Options{}, inner.URL); !errors.Is(err, ErrBlocked) {
		t.Errorf("loopback: %v", err)
	}
	if err := get(Options{Loopback: true}, inner.URL); err != nil {
		t.Errorf("loopback that is allowed: %v", err)
	}
	if err := get(Options{Loopback: true, Insecure: true}, outer.URL); err == nil {
		t.Error("a redirect from https to http is followed")
	}
}
