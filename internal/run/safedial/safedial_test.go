package safedial

import (
	"errors"
	"fmt"
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

// TestClouds: no address of a cloud's metadata service, nor a translation of one, is
// connected to. The same translations of public addresses are.
func TestClouds(t *testing.T) {
	services := []string{
		"169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200", "192.0.0.192", "127.0.0.1",
		"fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00:a9fe:a9fe::1", "fe80::a9fe:a9fe", "fec0::1",
	}
	ways := map[string]func(b [4]byte) string{
		"as it is":        func(b [4]byte) string { return netip.AddrFrom4(b).String() },
		"IPv4-mapped":     func(b [4]byte) string { return fmt.Sprintf("::ffff:%x:%x", b[:2], b[2:]) },
		"IPv4-compatible": func(b [4]byte) string { return fmt.Sprintf("::%x:%x", b[:2], b[2:]) },
		"SIIT":            func(b [4]byte) string { return fmt.Sprintf("::ffff:0:%x:%x", b[:2], b[2:]) },
		"NAT64":           func(b [4]byte) string { return fmt.Sprintf("64:ff9b::%x:%x", b[:2], b[2:]) },
		"local NAT64 /96": func(b [4]byte) string { return fmt.Sprintf("64:ff9b:1:7::%x:%x", b[:2], b[2:]) },
		"local NAT64 /64": func(b [4]byte) string {
			return fmt.Sprintf("64:ff9b:1:7:%02x:%02x%02x:%02x00:0", b[0], b[1], b[2], b[3])
		},
		"local NAT64 /56": func(b [4]byte) string { return fmt.Sprintf("64:ff9b:1:%02x:%02x:%02x%02x::", b[0], b[1], b[2], b[3]) },
		"local NAT64 /48": func(b [4]byte) string { return fmt.Sprintf("64:ff9b:1:%02x%02x:%02x:%02x00::", b[0], b[1], b[2], b[3]) },
		"6to4":            func(b [4]byte) string { return fmt.Sprintf("2002:%x:%x::1", b[:2], b[2:]) },
		"Teredo, server":  func(b [4]byte) string { return fmt.Sprintf("2001:0:%x:%x:0:0:f7f7:f7f7", b[:2], b[2:]) },
		"Teredo, client": func(b [4]byte) string {
			return fmt.Sprintf("2001:0:808:808:0:0:%02x%02x:%02x%02x", ^b[0], ^b[1], ^b[2], ^b[3])
		},
		"ISATAP":         func(b [4]byte) string { return fmt.Sprintf("2001:db8::5efe:%x:%x", b[:2], b[2:]) },
		"ISATAP, public": func(b [4]byte) string { return fmt.Sprintf("2001:db8::200:5efe:%x:%x", b[:2], b[2:]) },
	}
	check := func(what, text string) error {
		t.Helper()
		ip, err := netip.ParseAddr(text)
		if err != nil {
			t.Fatal(what, ": ", err)
		}
		return (Options{}).check(netip.AddrPortFrom(ip, 80).String())
	}
	for _, service := range services {
		ip := netip.MustParseAddr(service)
		if !ip.Is4() {
			if check("as it is", service) == nil {
				t.Errorf("%s is connected to", service)
			}
			continue
		}
		for way, write := range ways {
			if text := write(ip.As4()); check(way, text) == nil {
				t.Errorf("%s, %s: %s is connected to", service, way, text)
			}
		}
	}
	for way, write := range ways {
		if text := write([4]byte{8, 8, 4, 4}); check(way, text) != nil {
			t.Errorf("8.8.4.4, %s: %s is not connected to", way, text)
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
