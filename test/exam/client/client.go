// Package client sends the requests of a case, as an application or as a client outside would, and reports their outcomes.
//
// Requests go out byte for byte as the case writes them, so the package speaks HTTP/1 itself. Perform runs one goroutine
// per connection and waits for them. The package runs inside a network namespace and knows nothing of proxies.
package client

import (
	"bufio"
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
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"

	"github.com/pilotmesh/pilot/test/exam/backend"
	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/kit/certs"
)

// Job is one request entry, ready to be sent from inside a namespace.
type Job struct {
	Request  casefile.Request
	ID       string // exam-id prefix
	MeshCA   string
	PublicCA string
	Cert     string // client certificate, PEM
	Key      string
}

// Outcome is what one repetition experienced.
type Outcome struct {
	Error   string              `json:"error,omitempty"`
	Detail  string              `json:"detail,omitempty"` // the Go error, for people
	Status  int                 `json:"status,omitempty"`
	Proto   string              `json:"proto,omitempty"`
	Header  map[string][]string `json:"header,omitempty"`
	Backend string              `json:"backend,omitempty"`
	Body    string              `json:"body,omitempty"`
	Echo    *backend.Reply      `json:"echo,omitempty"`
	Cert    string              `json:"cert,omitempty"`
	ALPN    string              `json:"alpn,omitempty"`
	ID      string              `json:"id,omitempty"`
	Hits    []string            `json:"hits,omitempty"`
	Seconds float64             `json:"seconds"`
}

// Perform sends all repetitions of a job.
func Perform(j *Job) []Outcome {
	r := &j.Request
	out := make([]Outcome, r.Repeat)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(r.Parallel, r.Repeat) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c := &client{job: j}
			defer c.close()
			for i := range next {
				out[i] = c.once(i)
			}
		}()
	}
	for i := range r.Repeat {
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}

// client is one connection of a driver, reused across repetitions.
type client struct {
	job  *Job
	conn net.Conn
	br   *bufio.Reader
	h2   *http2.ClientConn //nolint:staticcheck // net/http has no connection that is made here yet
	cert string
	alpn string
	used bool
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
	}
	c.conn, c.h2, c.br = nil, nil, nil
}

func (c *client) once(i int) Outcome {
	r := &c.job.Request
	o := Outcome{ID: fmt.Sprintf("%s/%d", c.job.ID, i)}
	if r.HTTP != nil {
		if id := headerOf(r.HTTP.Headers, "exam-id"); id != "" {
			o.ID = id
		}
	}
	if r.Fresh || r.TCP != nil {
		c.close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.Timeout))
	defer cancel()
	start := time.Now()
	err := c.exchange(ctx, &o)
	if err != nil && c.used && o.Status == 0 && isClosed(err) {
		// a kept connection the server had already closed: once more on a new one
		c.close()
		err = c.exchange(ctx, &o)
	}
	o.Seconds = time.Since(start).Seconds()
	o.Cert, o.ALPN = c.cert, c.alpn
	if err != nil {
		o.Error, o.Detail = classify(err), err.Error()
		c.close()
	}
	c.used = c.conn != nil
	return o
}

func (c *client) exchange(ctx context.Context, o *Outcome) error {
	if c.conn == nil {
		if err := c.dial(ctx); err != nil {
			return err
		}
	}
	if d, ok := ctx.Deadline(); ok {
		_ = c.conn.SetDeadline(d) // on a broken connection the next call fails
	}
	switch {
	case c.job.Request.TCP != nil:
		return c.tcp(o)
	case c.h2 != nil:
		return c.http2(ctx, o)
	default:
		return c.http1(o)
	}
}

func (c *client) dial(ctx context.Context) error {
	r := &c.job.Request
	c.used, c.cert, c.alpn = false, "", ""
	d := net.Dialer{}
	if r.Source != "" {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(r.Source), 0))
	}
	conn, err := d.DialContext(ctx, "tcp", r.To)
	if err != nil {
		return err
	}
	c.conn = conn
	if r.TLS != nil {
		if err := c.handshake(ctx); err != nil {
			return err
		}
	}
	c.br = bufio.NewReader(c.conn)
	if err := c.refusedLate(); err != nil {
		return err
	}
	if r.HTTP != nil && (c.alpn == "h2" || c.alpn != "http/1.1" && r.HTTP.Version == "2") {
		t := &http2.Transport{AllowHTTP: true, DisableCompression: true} //nolint:staticcheck // as h2
		c.h2, err = t.NewClientConn(&buffered{Conn: c.conn, r: c.br})    //nolint:staticcheck // as h2
		return err
	}
	return nil
}

// buffered is a connection some of whose bytes were read ahead.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// refusedLate waits a moment for the alert of a TLS 1.3 server that does not like the client's certificate: it comes after the handshake, and a
// request already under way would turn it into a reset.
func (c *client) refusedLate() error {
	t, ok := c.conn.(*tls.Conn)
	if !ok || t.ConnectionState().Version != tls.VersionTLS13 || c.job.Request.Repeat > 1 {
		return nil
	}
	_ = t.SetReadDeadline(time.Now().Add(30 * time.Millisecond)) // on a broken connection Peek fails
	_, err := c.br.Peek(1)
	_ = t.SetReadDeadline(time.Time{})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

func (c *client) handshake(ctx context.Context) error {
	r := &c.job.Request
	spec := r.TLS
	cfg := &tls.Config{ServerName: spec.SNI, InsecureSkipVerify: true, NextProtos: spec.ALPN}
	if len(cfg.NextProtos) == 0 {
		if spec.As != "" {
			cfg.NextProtos = []string{"istio"}
		}
		if r.HTTP != nil && r.HTTP.Version == "2" {
			cfg.NextProtos = append(cfg.NextProtos, "h2")
		}
	}
	cfg.MinVersion, cfg.MaxVersion = casefile.TLSVersions[spec.Min], casefile.TLSVersions[spec.Max]
	if c.job.Cert != "" {
		kp, err := tls.X509KeyPair([]byte(c.job.Cert), []byte(c.job.Key))
		if err != nil {
			return err
		}
		// presented whatever CA names the server lists
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &kp, nil }
	}
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) > 0 {
			c.cert = certs.Name(s.PeerCertificates[0])
		}
		return verifyServer(c.job, s)
	}
	t := tls.Client(c.conn, cfg)
	if err := t.HandshakeContext(ctx); err != nil {
		return err
	}
	c.conn, c.alpn = t, t.ConnectionState().NegotiatedProtocol
	return nil
}

// verifyServer checks the server's certificate when the case names a CA for it.
func verifyServer(j *Job, s tls.ConnectionState) error {
	opts := x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if j.Request.TLS.As != "" {
		return nil // `ca` is the issuer of the client's certificate then
	}
	switch j.Request.TLS.CA {
	case "mesh":
		opts.Roots = certs.Pool(j.MeshCA)
	case "public":
		opts.Roots, opts.DNSName = certs.Pool(j.PublicCA), j.Request.TLS.SNI
	default:
		return nil
	}
	_, err := s.PeerCertificates[0].Verify(opts)
	return err
}

func (c *client) tcp(o *Outcome) error {
	spec := c.job.Request.TCP
	read := func(prefix string) error {
		line, err := c.br.ReadString('\n')
		if err != nil && line == "" {
			return err
		}
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if f[0] != prefix || len(f) < 2 {
			o.Body = strings.TrimSpace(line)
			return nil
		}
		o.Backend = f[1]
		return nil
	}
	if spec.ServerFirst {
		if err := read("hello"); err != nil || spec.Send == "" {
			return err
		}
	}
	send := spec.Send
	if send == "" {
		send = "ping"
	}
	if _, err := io.WriteString(c.conn, send+"\n"); err != nil {
		return err
	}
	return read("echo")
}

// headers are the request's fields in a fixed order.
func (c *client) headers(o *Outcome) [][2]string {
	h := c.job.Request.HTTP
	var out [][2]string
	for k, vs := range h.Headers {
		for _, v := range vs {
			out = append(out, [2]string{k, v})
		}
	}
	sort.SliceStable(out, func(a, b int) bool { return out[a][0] < out[b][0] })
	if headerOf(h.Headers, "exam-id") == "" {
		out = append(out, [2]string{"exam-id", o.ID})
	}
	return out
}

func headerOf(h map[string]casefile.Values, name string) string {
	for k, v := range h {
		if strings.EqualFold(k, name) && len(v) > 0 {
			return v[0]
		}
	}
	return ""
}

func (c *client) http1(o *Outcome) error {
	h := c.job.Request.HTTP
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/%s\r\n", h.Method, h.Path, version1(h))
	if h.Host != "-" {
		fmt.Fprintf(&b, "Host: %s\r\n", h.Host)
	}
	for _, kv := range c.headers(o) {
		fmt.Fprintf(&b, "%s: %s\r\n", kv[0], kv[1])
	}
	if h.Body != "" || slices.Contains([]string{"POST", "PUT", "PATCH"}, h.Method) {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(h.Body))
	}
	b.WriteString("\r\n" + h.Body)
	if _, err := io.WriteString(c.conn, b.String()); err != nil {
		return err
	}
	for {
		resp, err := http.ReadResponse(c.br, &http.Request{Method: h.Method})
		if err != nil {
			return err
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			err = o.take(resp)
			if resp.Close || h.Version == "1.0" {
				c.close()
			}
			return err
		}
	}
}

// version1 is the HTTP/1 version to write: a client asked for HTTP/2 may have negotiated http/1.1.
func version1(h *casefile.HTTP) string {
	if h.Version == "1.0" {
		return "1.0"
	}
	return "1.1"
}

func (c *client) http2(ctx context.Context, o *Outcome) error {
	h := c.job.Request.HTTP
	u := &url.URL{Scheme: "http", Host: h.Host, Opaque: h.Path} // opaque: sent byte for byte
	if c.job.Request.TLS != nil {
		u.Scheme = "https"
	}
	if strings.HasPrefix(h.Path, "//") {
		u.Opaque = "//" + h.Host + h.Path
	}
	req, err := http.NewRequestWithContext(ctx, h.Method, "http://x/", strings.NewReader(h.Body))
	if err != nil {
		return err
	}
	if h.Body == "" {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	req.URL, req.Host = u, h.Host
	req.Header.Set("User-Agent", "")
	for _, kv := range c.headers(o) {
		if strings.EqualFold(kv[0], "user-agent") {
			req.Header.Set("User-Agent", kv[1])
			continue
		}
		req.Header.Add(kv[0], kv[1])
	}
	resp, err := c.h2.RoundTrip(req)
	if err != nil {
		return err
	}
	return o.take(resp)
}

// take fills the outcome from a response.
func (o *Outcome) take(resp *http.Response) error {
	defer resp.Body.Close()
	o.Status, o.Proto, o.Backend = resp.StatusCode, resp.Proto, resp.Header.Get(backend.Header)
	o.Header = map[string][]string{}
	for k, v := range resp.Header {
		o.Header[strings.ToLower(k)] = v
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if o.Backend != "" && strings.HasPrefix(string(body), `{"echo":`) {
		o.Echo = new(backend.Reply)
		if bad := json.Unmarshal(body, o.Echo); bad != nil && err == nil {
			err = fmt.Errorf("what the echo server said: %w", bad)
		}
	} else {
		o.Body = string(body[:min(len(body), 2000)])
	}
	for k, v := range resp.Trailer {
		o.Header[strings.ToLower(k)] = v
	}
	return err
}

func isClosed(err error) bool {
	c := classify(err)
	return c == "eof" || c == "reset"
}

// classify reduces an error to the classes of FORMAT.md.
func classify(err error) string {
	var alert tls.AlertError
	var stream http2.StreamError
	var goAway http2.GoAwayError //nolint:staticcheck // what the transport above returns
	var record tls.RecordHeaderError
	var verify *tls.CertificateVerificationError
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &alert):
		return "tls:" + strings.TrimPrefix(alert.Error(), "tls: ")
	case strings.Contains(err.Error(), "remote error: tls: "):
		_, a, _ := strings.Cut(err.Error(), "remote error: tls: ")
		return "tls:" + a
	case errors.As(err, &record):
		return "tls:not tls"
	case errors.As(err, &verify), errors.As(err, new(x509.UnknownAuthorityError)), errors.As(err, new(x509.HostnameError)), errors.As(err, new(x509.CertificateInvalidError)):
		return "tls:unverified"
	case errors.As(err, &dns):
		return "dns"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.As(err, &stream):
		return "reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &goAway):
		return "eof"
	}
	if _, rest, ok := strings.Cut(err.Error(), "tls: "); ok {
		return "tls:" + strings.SplitN(rest, ":", 2)[0]
	}
	return "other:" + strconv.Quote(err.Error())
}
