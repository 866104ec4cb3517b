package keys

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/run/fetch"
	"github.com/pilotmesh/pilot/internal/run/safedial"
	"github.com/pilotmesh/pilot/internal/state/policies"
)

const (
	// defaultTimeout is how long an attempt may take, and longestTimeout how long a user may let it take.
	defaultTimeout = 5 * time.Second
	longestTimeout = time.Minute
	// maxDiscovery is the size of the largest OpenID configuration.
	maxDiscovery = 64 << 10
	discovery    = "/.well-known/openid-configuration"
)

// Options are the options of a client.
type Options struct {
	// Blocked are addresses that are not connected to, besides the addresses that are never reachable through the control plane.
	Blocked []netip.Prefix
	// Local says that the author of the configuration owns the host of the control plane, so that an address may name a
	// loopback address. A redirect never leads there.
	Local bool
	// Roots are the certificate authorities to trust; nil for the authorities of the system. Insecure accepts every certificate.
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
	return safedial.Options{Blocked: o.Blocked, Loopback: loopback, Timeout: defaultTimeout, Roots: o.Roots, Insecure: o.Insecure}.Client()
}

// errBlocked is why an address is not connected to.
var errBlocked = errors.New("its address is one that the control plane fetches nothing from (loopback, link-local and the like, and BLOCKED_CIDRS_IN_JWKS_URIS)")

// Fetch returns a key set as JSON. Errors contain nothing of the answer.
func (c *Client) Fetch(ctx context.Context, k policies.KeySource) (string, error) {
	timeout := defaultTimeout
	if k.Timeout > 0 {
		timeout = min(k.Timeout, longestTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	from, client := k.URL, c.clientFor(k.URL)
	if from == "" {
		client = c.clientFor(k.Issuer) // a jwks_uri may name a loopback address only if the issuer does
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

// Get returns the answer of a server to a request for an address of the configuration, of limit bytes at most. Errors contain nothing of it.
func (c *Client) Get(ctx context.Context, from string, limit int64) ([]byte, error) {
	return c.get(ctx, c.clientFor(from), from, limit)
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
		return "", errors.New("the issuer is no address from which the place of its keys could be read; set jwksUri or jwks")
	}
	body, err := c.get(ctx, client, strings.TrimSuffix(issuer, "/")+discovery, maxDiscovery)
	if err != nil {
		return "", fmt.Errorf("asking the issuer where its keys are: %w", err)
	}
	var told struct {
		JWKS string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(body, &told); err != nil || told.JWKS == "" {
		return "", errors.New("the issuer does not publish where its keys are; set jwksUri or jwks")
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
	body, err := fetch.Body(client, request, limit)
	if err != nil {
		return nil, plain(err)
	}
	return body, nil
}

// plain returns an error without the address that was asked, which may hold credentials.
func plain(err error) error {
	if errors.Is(err, safedial.ErrBlocked) {
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
