// Package backend is all the peers of a proxy: HTTP, TLS and TCP servers that describe the requests they got, an external authorizer, and a name
// server.
//
// The table in FORMAT.md lists the ports. The servers' goroutines belong to package echo of the test kit, and end before Close returns; the name
// server's end with the process. The package runs inside a network namespace and knows nothing of proxies.
package backend

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/kit/echo"
)

// Reply is an HTTP echo server's description of the request it got. Its form stays as it is, and differs from echo.Report:
// answers that are stored beside cases (traffic/tunnel) hold it literally.
type Reply struct {
	Echo      string              `json:"echo"` // the address the request was reached at
	From      string              `json:"from"`
	Method    string              `json:"method"`
	Path      string              `json:"path"`
	Authority string              `json:"authority"`
	Protocol  string              `json:"protocol"`
	Headers   map[string][]string `json:"headers"`
	Body      string              `json:"body,omitempty"`
	TLS       bool                `json:"tls"`
	SNI       string              `json:"sni,omitempty"`
	ALPN      string              `json:"alpn,omitempty"`
	Peer      string              `json:"peer,omitempty"`
}

// Header marks every answer of an echo server, HEAD included.
const Header = "Exam-Backend"

// Servers is the set of echo servers of one namespace. It remembers which requests arrived, by exam-id.
type Servers struct {
	pki   *Keys
	authz *grpc.Server

	mu    sync.Mutex
	hits  map[string][]string
	fails map[string]int

	open *echo.Servers // of the last Listen; nil if they are closed
}

// Keys is the key material of the TLS echo servers.
type Keys struct {
	Backend, Intruder certs.Pair
	MeshCA            string
	PublicCert        certs.Pair // the public CA itself: leaves are issued by SNI
}

// New prepares the servers; Listen opens them.
func New(p *Keys) *Servers {
	return &Servers{pki: p, authz: newAuthorizer(), hits: map[string][]string{}, fails: map[string]int{}}
}

// Listen opens every port of the table in FORMAT.md except the ports in except.
func (e *Servers) Listen(except []int) error {
	e.open = echo.NewServers()
	for _, r := range []struct {
		from, to int
		open     func(int) error
	}{{8080, 8089, e.listenHTTP}, {8443, 8446, e.listenTLS}, {9090, 9096, e.listenTCP}} {
		for p := r.from; p <= r.to; p++ {
			if slices.Contains(except, p) {
				continue
			}
			if err := r.open(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Servers) listenTCP(port int) error {
	l, err := listen(port)
	if err == nil {
		e.open.TCP(l, func(c net.Conn) { e.serveLines(c, c, port >= 9095) })
	}
	return err
}

func listen(port int) (net.Listener, error) { return net.Listen("tcp", ":"+strconv.Itoa(port)) }

// Close shuts all listeners and connections; Listen may be called again.
func (e *Servers) Close() error {
	if e.open == nil {
		return nil
	}
	defer func() { e.open = nil }()
	return e.open.CloseNow()
}

func (e *Servers) httpServer() *http.Server {
	s := echo.NewHTTP(e)
	s.ReadHeaderTimeout = 0 // Envoy may keep a connection for later
	s.ErrorLog = log.New(io.Discard, "", 0)
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if t, ok := c.(*sniffed); ok {
			return context.WithValue(ctx, tlsKey{}, t.state)
		}
		return ctx
	}
	return s
}

func (e *Servers) listenHTTP(port int) error {
	l, err := listen(port)
	if err == nil {
		e.open.HTTP(l, e.httpServer())
	}
	return err
}

type tlsKey struct{}

// sniffed is a decrypted connection whose first bytes were looked at.
type sniffed struct {
	net.Conn
	r      *bufio.Reader
	state  *tls.ConnectionState
	closed chan struct{}
	once   sync.Once
}

func (s *sniffed) Read(b []byte) (int, error) { return s.r.Read(b) }

func (s *sniffed) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// connQueue is a net.Listener fed by hand.
type connQueue struct {
	net.Listener
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

func (q *connQueue) put(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.done:
		c.Close()
	}
}

func (q *connQueue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}

// listenTLS terminates TLS, then serves HTTP or lines, whichever the client speaks.
func (e *Servers) listenTLS(port int) error {
	cfg, err := e.pki.serverConfig(port)
	if err != nil {
		return err
	}
	l, err := listen(port)
	if err != nil {
		return err
	}
	q := &connQueue{Listener: l, conns: make(chan net.Conn), done: make(chan struct{})}
	e.open.HTTP(q, e.httpServer())
	e.open.TCP(l, func(c net.Conn) {
		t := tls.Server(c, cfg)
		_ = t.SetDeadline(time.Now().Add(5 * time.Second))
		if t.Handshake() != nil {
			return
		}
		state := t.ConnectionState()
		s := &sniffed{Conn: t, r: bufio.NewReader(t), state: &state, closed: make(chan struct{})}
		b, err := s.r.Peek(3)
		_ = t.SetDeadline(time.Time{})
		if err == nil && looksHTTP(b) {
			q.put(s)
			<-s.closed // when we return the connection ends
			return
		}
		e.serveLines(s, s.r, false)
	})
	return nil
}

func looksHTTP(b []byte) bool {
	for _, m := range []string{"GET", "PRI", "POS", "PUT", "HEA", "DEL", "OPT", "PAT", "CON", "TRA"} {
		if bytes.HasPrefix(b, []byte(m)) {
			return true
		}
	}
	return false
}

// serveLines is the TCP echo.
func (e *Servers) serveLines(c net.Conn, r io.Reader, serverFirst bool) {
	defer c.Close()
	at := c.LocalAddr().String()
	if serverFirst {
		fmt.Fprintf(c, "hello %s\n", at)
	}
	for sc := bufio.NewScanner(r); sc.Scan(); {
		fmt.Fprintf(c, "echo %s %s\n", at, sc.Text())
	}
}

// replySpec is a parsed exam-reply header.
type replySpec struct {
	status int
	after  time.Duration
	header http.Header
	times  int
	close  bool
}

func parseReply(s string) replySpec {
	r := replySpec{status: 200, header: http.Header{}}
	for _, f := range strings.Split(s, ",") {
		k, v, _ := strings.Cut(strings.TrimSpace(f), "=")
		switch k {
		case "status":
			r.status, _ = strconv.Atoi(v)
		case "after", "sleep":
			r.after, _ = time.ParseDuration(v)
		case "header":
			n, val, _ := strings.Cut(v, ":")
			r.header.Add(n, val)
		case "times":
			r.times, _ = strconv.Atoi(v)
		case "close":
			r.close = true
		}
	}
	return r
}

func (e *Servers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
	_, port, _ := net.SplitHostPort(at)
	if port == authzPort && r.URL.Path == authzMethod {
		e.authz.ServeHTTP(w, r)
		return
	}
	reply := parseReply(r.Header.Get("exam-reply"))
	if n := e.arrived(r, at); reply.times > 0 && n > reply.times {
		reply = replySpec{status: 200, header: http.Header{}}
	}
	if port == authzPort {
		if r.Header.Get(authzQuery) == "deny" {
			reply.status = http.StatusForbidden
		} else {
			reply.header.Set(authzMark, "yes")
		}
	}
	if reply.after > 0 {
		select {
		case <-time.After(reply.after):
		case <-r.Context().Done():
			return
		}
	}
	if reply.close {
		panic(http.ErrAbortHandler)
	}
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	out, _ := json.Marshal(describe(r, at, body))
	h := w.Header()
	for k, v := range reply.header {
		h[k] = v
	}
	h.Set(Header, at)
	h.Set("Content-Type", "application/json")
	h["Date"] = nil
	if r.Method == http.MethodConnect && r.ProtoMajor == 1 {
		e.tunnel(w, at, out)
		return
	}
	w.WriteHeader(max(reply.status, 200))
	_, _ = w.Write(out) // a client that left needs no answer
}

// tunnel is the far end of one: it writes the request for the tunnel as a line, then echoes lines. What net/http does with a
// connection after CONNECT differs from release to release.
func (e *Servers) tunnel(w http.ResponseWriter, at string, told []byte) {
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s: %s\r\n\r\n%s\n", Header, at, told)
	e.serveLines(c, buffered, false)
}

func describe(r *http.Request, at string, body []byte) Reply {
	saw := echo.Request(r)
	from, _, _ := net.SplitHostPort(saw.Remote)
	out := Reply{Echo: at, From: from, Method: saw.Method, Path: saw.Path, Authority: saw.Host, Protocol: saw.Protocol,
		Headers: map[string][]string{}, Body: string(body[:min(len(body), 256)])}
	for k, v := range saw.Headers {
		out.Headers[strings.ToLower(k)] = v
	}
	if s, ok := r.Context().Value(tlsKey{}).(*tls.ConnectionState); ok {
		t := echo.Encryption(s)
		out.TLS, out.SNI, out.ALPN, out.Peer = true, t.SNI, t.ALPN, t.Peer
	}
	return out
}

// arrived notes a request and returns how many with its exam-id came so far.
func (e *Servers) arrived(r *http.Request, at string) int {
	id := r.Header.Get("exam-id")
	if id == "" {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hits[id] = append(e.hits[id], fmt.Sprintf("%s %s %s %s", at, r.Method, r.Host, r.RequestURI))
	e.fails[id]++
	return e.fails[id]
}

// Forget restarts the count of arrivals: a case may run twice in one environment.
func (e *Servers) Forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.hits)
	clear(e.fails)
}

// Take returns and forgets the hits of an exam-id.
func (e *Servers) Take(id string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.hits[id]
	delete(e.hits, id)
	return slices.Sorted(slices.Values(h))
}
