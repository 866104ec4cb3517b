package registries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/pilotmesh/pilot/internal/run/retry"
)

// The limits of requests to servers.
const (
	dialTimeout = 5 * time.Second
	maxAnswer   = 256 << 20
	maxText     = 200 // of an answer that is quoted in an error
)

// Client sends HTTP requests to any of the servers of a registry. It keeps to one server until that fails.
type Client struct {
	bases  []string
	http   *http.Client
	at     atomic.Uint32
	header http.Header
}

// NewClient returns a client for the servers of an entry. header is sent with each request. connections bounds the connections to one server.
func NewClient(e Entry, a Access, header http.Header, connections int) *Client {
	c := &Client{header: header}
	for _, address := range e.Addresses {
		c.bases = append(c.bases, e.Scheme+"://"+address)
	}
	c.http = &http.Client{
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSClientConfig: a.TLS, TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true,
			MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections, IdleConnTimeout: 2 * time.Minute, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a redirect would take the secret elsewhere
	}
	return c
}

// Close closes connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Answer is the answer of a server.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// StatusError is an answer that is no success.
type StatusError struct {
	Status int
	Text   string
}

// Error implements error.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the server answers %d %s: %s", e.Status, http.StatusText(e.Status), e.Text)
}

// IsRefusal reports whether a server does not let us do what we asked for.
func IsRefusal(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden)
}

// Get requests a path. If a server cannot be reached or has an error of its own, the next one is asked. An answer that is no success is an
// error. The timeout is for each server.
func (c *Client) Get(ctx context.Context, timeout time.Duration, path string, query url.Values, header http.Header) (*Answer, error) {
	return c.do(ctx, timeout, http.MethodGet, path, query, "", header)
}

// Post sends a form.
func (c *Client) Post(ctx context.Context, timeout time.Duration, path string, form url.Values) (*Answer, error) {
	return c.do(ctx, timeout, http.MethodPost, path, nil, form.Encode(), http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})
}

func (c *Client) do(ctx context.Context, timeout time.Duration, method, path string, query url.Values, body string, header http.Header) (*Answer, error) {
	var failed []error
	for range c.bases {
		at := c.at.Load()
		answer, err := c.once(ctx, timeout, method, c.bases[int(at)%len(c.bases)], path, query, body, header)
		var status *StatusError
		if err == nil || ctx.Err() != nil || errors.As(err, &status) && status.Status < 500 {
			return answer, err
		}
		failed = append(failed, err)
		c.at.CompareAndSwap(at, at+1)
	}
	return nil, errors.Join(failed...)
}

func (c *Client) once(ctx context.Context, timeout time.Duration, method, base, path string, query url.Values, body string, header http.Header) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	to := base + path
	if len(query) > 0 {
		to += "?" + query.Encode()
	}
	q, err := http.NewRequestWithContext(ctx, method, to, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for _, h := range []http.Header{c.header, header} {
		for name, values := range h {
			q.Header[name] = values
		}
	}
	a, err := c.http.Do(q)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", base, plain(err))
	}
	defer a.Body.Close()
	b, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", base, err)
	case len(b) > maxAnswer:
		return nil, fmt.Errorf("%s: the answer to %s has more than %d bytes", base, path, maxAnswer)
	case a.StatusCode < 200 || a.StatusCode > 299:
		return nil, fmt.Errorf("%s: %w", base, &StatusError{a.StatusCode, quoted(b)})
	}
	return &Answer{a.StatusCode, a.Header, b}, nil
}

// plain returns an error without the URL, which names the request and nothing that helps.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		if errors.Is(u.Err, context.DeadlineExceeded) {
			return errors.New("no answer in time")
		}
		return u.Err
	}
	return err
}

// quoted is the beginning of an answer, as one line.
func quoted(b []byte) string {
	s := strings.Join(strings.Fields(string(b[:min(len(b), maxText)])), " ")
	return strings.ToValidUTF8(s, "?")
}

// Backoff is the pauses between attempts to reach a server: from 100 ms to 30 s, with jitter.
type Backoff struct{ pauses *backoff.ExponentialBackOff }

// The bounds of pauses. Chance makes a pause up to a half longer.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 20 * time.Second
)

// NewBackoff returns pauses that begin with a short one.
func NewBackoff() *Backoff { return &Backoff{retry.Pauses(firstPause, longestPause)} }

// Reset makes the next pause short.
func (b *Backoff) Reset() { b.pauses.Reset() }

// Wait waits for the next pause. It reports false if ctx ended.
func (b *Backoff) Wait(ctx context.Context) bool { return Pause(ctx, b.pauses.NextBackOff()) }

// Pause waits for a time. It reports false if ctx ended.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
