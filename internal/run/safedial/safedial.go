// Package safedial makes HTTP clients for requests to addresses that a user of the mesh chose. So that the user cannot use the network
// position of the program (SSRF), such a client does not connect to addresses that lead back to the host or to its cloud: loopback and
// link-local ranges, metadata services and the like, and addresses that the operator has blocked.
//
// Invariants: The check is of the address of the connection, after all names and redirects, and after translations to IPv4
// (addresses.go). No HTTP proxy is used, because it would connect to addresses that the dialer refuses.
//
// The package starts no goroutines.
package safedial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

const (
	// maxRedirects bounds how often an answer may send to another address.
	maxRedirects = 5
	// maxHeader is the size of the largest header of an answer, in bytes.
	maxHeader = 64 << 10
)

// ErrBlocked is why an address is not connected to.
var ErrBlocked = errors.New("the address is one of loopback, link-local and the like, or blocked by the operator")

// Options are the options of a client.
type Options struct {
	// Blocked are addresses that a client does not connect to, besides the ones that are always blocked.
	Blocked []netip.Prefix
	// Loopback allows loopback addresses.
	Loopback bool
	// Timeout is how long connecting may take, and the handshake of TLS after it.
	Timeout time.Duration
	// Roots are the certificate authorities to trust; nil for the system's. Insecure accepts every certificate.
	Roots    *x509.CertPool
	Insecure bool
}

// Transport returns a transport that keeps no connections.
func (o Options) Transport() *http.Transport {
	dialer := &net.Dialer{Timeout: o.Timeout, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		return o.check(address)
	}}
	return &http.Transport{
		DialContext:         dialer.DialContext,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots, InsecureSkipVerify: o.Insecure}, //nolint:gosec // asked for by the operator
		TLSHandshakeTimeout: o.Timeout, MaxResponseHeaderBytes: maxHeader, ForceAttemptHTTP2: true, DisableKeepAlives: true,
	}
}

// Client returns a client that follows a few redirects, and none from https to something else.
func (o Options) Client() *http.Client {
	return &http.Client{Transport: o.Transport(), CheckRedirect: Redirect}
}

// Redirect is the rule about redirects of Client.
func Redirect(to *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return errors.New("it redirects too often")
	case to.URL.Scheme != "https" && (to.URL.Scheme != "http" || via[0].URL.Scheme == "https"):
		return errors.New("it redirects from https to something else")
	}
	return nil
}

// check refuses addresses that lead back to the host or its cloud.
func (o Options) check(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return ErrBlocked
	}
	return o.checkIP(at.Addr())
}

// Blocked reports whether clients without options of their own do not connect to an address.
func Blocked(ip netip.Addr) bool { return Options{}.checkIP(ip) != nil }

// Blocks reports whether clients do not connect to an address.
func (o Options) Blocks(ip netip.Addr) bool { return o.checkIP(ip) != nil }

func (o Options) checkIP(at netip.Addr) error {
	for _, ip := range readings(at.Unmap().WithZone("")) {
		if !ip.IsValid() || ip.IsLoopback() && !o.Loopback || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() ||
			within(ip, never()) || within(ip, o.Blocked) {
			return ErrBlocked
		}
	}
	return nil
}

func within(ip netip.Addr, blocks []netip.Prefix) bool {
	return slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return b.Contains(ip) })
}
