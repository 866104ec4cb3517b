package jwks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/state"
)

const (
	// defaultTimeout is how long an attempt may take, and longestTimeout how long a user may let it take.
	defaultTimeout = 5 * time.Second
	longestTimeout = time.Minute
	// maxRedirects bounds how often an answer may send to another address.
	maxRedirects = 5
	// maxDiscovery is the size of the largest OpenID configuration.
	maxDiscovery = 64 << 10
	discovery    = "/.well-known/openid-configuration"
)

// Options are those of a client.
type Options struct {
	// Blocked are addresses that are not connected to, besides those that nobody may reach through the control plane.
	Blocked []netip.Prefix
	// Local says that whoever writes the configuration owns the host of the control plane, so that an address may name a loopback
	// address. A redirect never leads there.
	Local bool
	// Roots are the certificate authorities to trust; nil for those of the system. Insecure accepts every certificate.
	Roots    *x509.CertPool
	Insecure bool
}

// Client makes the requests for key sets.
type Client struct {
	http *http.Client
	// local is for addresses that name a loopback address; nil if these are refused, too.
	local *http.Client
}

// NewClient returns a client.
func NewClient(o Options) *Client {
	c := &Client{http: o.client(false)}
	if o.Local {
		c.local = o.client(true)
		c.local.CheckRedirect = func(*http.Request, []*http.Request) error {
			return errors.New("it redirects, which no address of this host may")
		}
	}
	return c
}

func (o Options) client(loopback bool) *http.Client {
	dialer := &net.Dialer{Timeout: defaultTimeout, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		return checkAddress(address, o.Blocked, loopback)
	}}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,                                                                          // and no proxy: it would connect to what the dialer refuses
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots, InsecureSkipVerify: o.Insecure}, //nolint:gosec // asked for by the operator
			TLSHandshakeTimeout: defaultTimeout, MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true, DisableKeepAlives: true,
		},
		CheckRedirect: func(to *http.Request, via []*http.Request) error {
			switch {
			case len(via) > maxRedirects:
				return errors.New("it redirects too often")
			case to.URL.Scheme != "https" && (to.URL.Scheme != "http" || via[0].URL.Scheme == "https"):
				return errors.New("it redirects from https to something else")
			}
			return nil
		},
	}
}

// errBlocked is why an address is not connected to.
var errBlocked = errors.New("its address is one that the control plane does not fetch keys from (loopback, link-local and the like, and BLOCKED_CIDRS_IN_JWKS_URIS)")

// checkAddress refuses addresses that lead back to the control plane, its host or its cloud.
func checkAddress(address string, blocked []netip.Prefix, loopback bool) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return errBlocked
	}
	for _, ip := range embedded(at.Addr().Unmap().WithZone("")) {
		if !ip.IsValid() || ip.IsLoopback() && !loopback || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || isMetadata(ip) {
			return errBlocked
		}
		for _, block := range blocked {
			if block.Contains(ip) {
				return errBlocked
			}
		}
	}
	return nil
}

// embedded returns an address and the address of IPv4 that is in it, if a translator such as NAT64 or 6to4 takes it from there.
func embedded(ip netip.Addr) []netip.Addr {
	all := []netip.Addr{ip}
	if !ip.Is6() {
		return all
	}
	b := ip.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(ip), netip.MustParsePrefix("::/96").Contains(ip):
		all = append(all, netip.AddrFrom4([4]byte(b[12:16])))
	case netip.MustParsePrefix("2002::/16").Contains(ip):
		all = append(all, netip.AddrFrom4([4]byte(b[2:6])))
	}
	return all
}

// isMetadata reports whether an address is that of a cloud's metadata service, besides those in link-local ranges, or of this network.
func isMetadata(ip netip.Addr) bool {
	return ip == netip.MustParseAddr("fd00:ec2::254") || ip == netip.MustParseAddr("100.100.100.200") ||
		netip.MustParsePrefix("0.0.0.0/8").Contains(ip) || ip == netip.MustParseAddr("255.255.255.255")
}

// Fetch returns a key set as JSON. Errors hold nothing of what was fetched.
func (c *Client) Fetch(ctx context.Context, k state.KeySource) (string, error) {
	timeout := defaultTimeout
	if k.Timeout > 0 {
		timeout = min(k.Timeout, longestTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	from, client := k.URL, c.clientFor(k.URL)
	if from == "" {
		client = c.clientFor(k.Issuer) // what the issuer tells may lead to this host only if the issuer is there
		var err error
		if from, err = c.discover(ctx, client, k.Issuer); err != nil {
			return "", err
		}
	}
	body, err := c.get(ctx, client, from, api.MaxKeySet)
	if err != nil {
		return "", err
	}
	if reason := api.CheckKeySet(body); reason != "" {
		return "", fmt.Errorf("the answer %s", reason)
	}
	return string(body), nil
}

// clientFor returns the client for an address of the configuration.
func (c *Client) clientFor(from string) *http.Client {
	u, err := url.Parse(from)
	if err != nil || c.local == nil {
		return c.http
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsLoopback() {
		return c.local
	}
	return c.http
}

// discover asks an issuer for the address of its key set.
func (c *Client) discover(ctx context.Context, client *http.Client, issuer string) (string, error) {
	if !strings.HasPrefix(issuer, "https://") && !strings.HasPrefix(issuer, "http://") {
		return "", errors.New("the issuer is no address that could tell where its keys are; set jwksUri or jwks")
	}
	body, err := c.get(ctx, client, strings.TrimSuffix(issuer, "/")+discovery, maxDiscovery)
	if err != nil {
		return "", fmt.Errorf("asking the issuer where its keys are: %w", err)
	}
	var told struct {
		JWKS string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(body, &told); err != nil || told.JWKS == "" {
		return "", errors.New("the issuer does not tell where its keys are; set jwksUri or jwks")
	}
	return told.JWKS, nil
}

// get returns the body of an answer.
func (*Client) get(ctx context.Context, client *http.Client, from string, limit int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil || request.URL.Scheme != "http" && request.URL.Scheme != "https" {
		return nil, errors.New("it has no valid address")
	}
	request.Header.Set("Accept", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return nil, plain(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer has status %d", answer.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, limit+1))
	switch {
	case err != nil:
		return nil, plain(err)
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("the answer has more than %d bytes", limit)
	}
	return body, nil
}

// plain returns an error without the address that was asked, which may hold credentials.
func plain(err error) error {
	if errors.Is(err, errBlocked) {
		return errBlocked
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("there was no complete answer in time")
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
