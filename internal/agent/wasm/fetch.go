package wasm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/pilotmesh/pilot/internal/run/retry"
	"github.com/pilotmesh/pilot/internal/run/safedial"
)

// permanent is an error that would recur at another attempt.
type permanent struct{ error }

// Unwrap returns the error itself.
func (p permanent) Unwrap() error { return p.error }

// longestPause is the longest pause between two attempts.
const longestPause = 10 * time.Second

// fetch fetches a module, with several attempts if another one may succeed.
func (c *Cache) fetch(ctx context.Context, r reference, m Module) (string, error) {
	pauses := retry.Pauses(c.pause, longestPause)
	for attempt := 0; ; attempt++ {
		path, err := c.try(ctx, r, m)
		if err == nil {
			return path, nil
		}
		again, err := judge(err, r)
		if !again || attempt >= c.o.Retries {
			return "", err
		}
		c.o.Log.Debug("a Wasm module is asked for again", "from", shown(m.URL), "error", err)
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-ctx.Done():
			return "", err
		}
	}
}

// try makes one attempt to fetch a module.
func (c *Cache) try(ctx context.Context, r reference, m Module) (path string, err error) {
	file, err := os.CreateTemp(c.o.Dir, temporary+"*") // only its owner can read it
	if err != nil {
		return "", permanent{fmt.Errorf("it cannot be stored: %w", err)}
	}
	defer func() {
		file.Close()
		if err != nil {
			os.Remove(file.Name()) //nolint:errcheck // or at the next start
		}
	}()
	if r.image != nil {
		return c.tryImage(ctx, file, r.image, m)
	}
	return c.tryWeb(ctx, file, r.web, m)
}

// disk marks errors of writing, to distinguish them from errors of the server.
type disk struct{ to io.Writer }

// Write implements io.Writer.
func (d disk) Write(b []byte) (int, error) {
	n, err := d.to.Write(b)
	if err != nil {
		err = permanent{fmt.Errorf("it cannot be stored: %w; free some space there", err)}
	}
	return n, err
}

// tryWeb fetches a module from a web server.
func (c *Cache) tryWeb(ctx context.Context, file *os.File, from *url.URL, m Module) (string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return "", permanent{errors.New("it is not a valid address")}
	}
	client := http.Client{Transport: c.web.plain, CheckRedirect: safedial.Redirect}
	answer, err := client.Do(q)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", &transport.Error{StatusCode: answer.StatusCode}
	}
	in, err := open(answer.Body, c.maxModule)
	if err != nil {
		return "", err
	}
	sum, err := store(disk{file}, in, c.maxModule)
	if err == nil {
		err = checkSum(sum, m.SHA256)
	}
	if err != nil {
		return "", err
	}
	return c.keep(file, sum, m.Version, urlKey(m))
}

// checkSum compares checksums.
func checkSum(got, want string) error {
	if want != "" && got != want {
		return permanent{fmt.Errorf("its SHA-256 checksum is %s, but %.64q is wanted; correct sha256, or find out who has changed the module", got, want)}
	}
	return nil
}

// judge decides whether another attempt makes sense, and returns an error for users: without URLs, and with the remedy.
func judge(err error, r reference) (again bool, plain error) {
	if e, ok := errors.AsType[permanent](err); ok {
		return false, e.error
	}
	if errors.Is(err, safedial.ErrBlocked) {
		return false, fmt.Errorf("the address of %s is one that modules are not fetched from (loopback, link-local and the like, and BLOCKED_CIDRS_IN_WASM_FETCH); "+
			"use another server, or name this one in WASM_INSECURE_REGISTRIES if it is on this host", r.host())
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false, fmt.Errorf("the certificate of %s is not valid: %w; correct it, or name the server in WASM_INSECURE_REGISTRIES", r.host(), e.Err)
	}
	if e, ok := errors.AsType[*transport.Error](err); ok {
		return judgeStatus(e, r)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, which may have credentials
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = errors.New("the answer is cut off")
	}
	return true, fmt.Errorf("%s: %w; check whether this host can reach it", r.host(), err)
}

// judgeStatus judges an answer of a server with another status than 200.
func judgeStatus(e *transport.Error, r reference) (again bool, plain error) {
	why := fmt.Sprintf("%s answers with status %d", r.host(), e.StatusCode)
	for _, d := range e.Errors {
		why += fmt.Sprintf(" %.80s", d.Code)
	}
	switch code := e.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return false, errors.New(why + ": set imagePullSecret to a Secret with valid credentials for it")
	case code == http.StatusNotFound:
		return false, errors.New(why + ": check the path, and the tag or digest of an image")
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return true, errors.New(why + "; check whether it works")
	}
	return false, errors.New(why)
}

// transports are the ways to servers.
type transports struct {
	// plain allows http://, and secure does so only where the operator trusts the server.
	plain, secure http.RoundTripper
}

func newTransports(c *Cache) *transports {
	usual := safedial.Options{Blocked: c.o.Blocked, Timeout: c.o.Silence}
	trusted := usual
	trusted.Insecure = true
	local := trusted
	local.Loopback = true
	w := way{cache: c, usual: usual.Transport(), trusted: trusted.Transport(), local: local.Transport()}
	plain := w
	plain.http = true
	return &transports{plain: &plain, secure: &w}
}

// way is a way to servers. It treats each server according to the operator's settings.
type way struct {
	cache                 *Cache
	usual, trusted, local http.RoundTripper
	http                  bool // whether http:// is allowed
}

// RoundTrip implements http.RoundTripper. It gives up an answer that stops arriving.
func (w *way) RoundTrip(q *http.Request) (*http.Response, error) {
	host := q.URL.Host
	if q.URL.Scheme != "https" && !w.http && !w.cache.insecure(host) {
		return nil, permanent{fmt.Errorf("%s speaks no TLS, and modules are not fetched from it without; name it in WASM_INSECURE_REGISTRIES if that is intended", host)}
	}
	by := w.usual
	switch {
	case w.cache.named(host):
		by = w.local
	case w.cache.insecure(host):
		by = w.trusted
	}
	ctx, cancel := context.WithCancelCause(q.Context())
	patience := w.cache.o.Silence
	late := time.AfterFunc(patience, func() { cancel(silentError(patience)) })
	answer, err := by.RoundTrip(q.WithContext(ctx))
	if err != nil {
		late.Stop()
		cancel(nil)
		return nil, silence(ctx, err)
	}
	answer.Body = &patient{body: answer.Body, ctx: ctx, late: late, patience: patience, cancel: cancel}
	return answer, nil
}

// silentError is the error of an answer that was given up.
type silentError time.Duration

// Error implements error.
func (e silentError) Error() string {
	return fmt.Sprintf("it has sent nothing for %v (WASM_HTTP_REQUEST_TIMEOUT)", time.Duration(e))
}

func silence(ctx context.Context, err error) error {
	if s, ok := errors.AsType[silentError](context.Cause(ctx)); ok {
		return s
	}
	return err
}

// patient is the body of an answer, which is given up if it stops arriving.
type patient struct {
	body     io.ReadCloser
	ctx      context.Context // the context of the request
	late     *time.Timer
	patience time.Duration
	cancel   context.CancelCauseFunc
}

// Read implements io.Reader.
func (p *patient) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, silence(p.ctx, err)
	}
	p.late.Reset(p.patience)
	return n, err
}

// Close implements io.Closer.
func (p *patient) Close() error {
	p.late.Stop()
	p.cancel(nil)
	return p.body.Close()
}
