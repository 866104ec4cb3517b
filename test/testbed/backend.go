package testbed

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/kit/echo"
)

// Backend is a server that says who it is. Close ends it.
type Backend struct {
	Name    string
	Port    int
	servers *echo.Servers
	got     atomic.Int64
	failing atomic.Int64
}

// Requests is how many HTTP requests have come.
func (b *Backend) Requests() int { return int(b.got.Load()) }

// Fail makes the backend answer the next n HTTP requests with 503.
func (b *Backend) Fail(n int) { b.failing.Store(int64(n)) }

// Close stops the backend and waits until it has ended.
func (b *Backend) Close() error { return b.servers.CloseNow() }

// StartHTTP serves HTTP/1.1 and HTTP/2 without TLS on a port of loopback; 0 means any free one.
func StartHTTP(name string, port int) (*Backend, error) {
	address := ""
	if port != 0 {
		address = Loopback(port)
	}
	return startHTTP(name, address)
}

// StartHTTPv6 is StartHTTP at a free port of the loopback address of IPv6, and of no other address.
func StartHTTPv6(name string) (*Backend, error) { return startHTTP(name, "[::1]:0") }

func startHTTP(name, address string) (*Backend, error) {
	b, l, err := newBackend(name, address)
	if err != nil {
		return nil, err
	}
	b.servers.HTTP(l, echo.NewHTTP(http.HandlerFunc(b.answer)))
	return b, nil
}

// newBackend opens a port of a loopback address for a backend; without an address, the port of Listen.
func newBackend(name, address string) (*Backend, net.Listener, error) {
	var l net.Listener
	var err error
	if address == "" {
		l, err = Listen()
	} else {
		l, err = net.Listen("tcp", address)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("backend %s: %w", name, err)
	}
	return &Backend{Name: name, Port: l.Addr().(*net.TCPAddr).Port, servers: echo.NewServers()}, l, nil
}

func (b *Backend) answer(w http.ResponseWriter, r *http.Request) {
	b.got.Add(1)
	if b.failing.Add(-1) >= 0 {
		http.Error(w, b.Name+" fails as its settings demand", http.StatusServiceUnavailable)
		return
	}
	report := echo.Request(r)
	report.Name = b.Name
	echo.Answer(w, report)
}

// StartTCP serves a protocol in which the server speaks first: it sends its report, and then echoes its input.
func StartTCP(name string) (*Backend, error) {
	b, l, err := newBackend(name, "")
	if err != nil {
		return nil, err
	}
	b.servers.TCP(l, echo.ServerFirst(name, ""))
	return b, nil
}

// StartTLS is StartTCP in TLS, with a self-signed certificate.
func StartTLS(name string) (*Backend, error) {
	certificate, err := certs.SelfSigned(certs.Identity{Name: name, Hosts: []string{name}})
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}
	b, l, err := newBackend(name, "")
	if err != nil {
		return nil, err
	}
	b.servers.TCP(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}}), echo.ServerFirst(name, ""))
	return b, nil
}

// Greeting connects to a local port and returns the name that is said there; with a server name it speaks TLS.
func Greeting(ctx context.Context, port int, serverName string) (string, error) {
	return GreetingAt(ctx, "tcp", Loopback(port), serverName)
}

// GreetingAt is the same for an address of any network.
func GreetingAt(ctx context.Context, network, address, serverName string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	if serverName != "" {
		// Whose certificate it is does not matter: it says in clear words who it is.
		conn = tls.Client(conn, &tls.Config{ServerName: serverName, InsecureSkipVerify: true}) //nolint:gosec // see above
	}
	var said echo.Report
	err = json.NewDecoder(conn).Decode(&said)
	return said.Name, err
}

// Call sends one HTTP request to a local port, as if for host, and returns who answered. Any status but 200 is an error.
func Call(ctx context.Context, client *http.Client, port int, host, path string, headers ...string) (echo.Report, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+Loopback(port)+path, nil)
	if err != nil {
		return echo.Report{}, err
	}
	req.Host = host
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return echo.Report{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return echo.Report{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return echo.Report{}, &StatusError{resp.StatusCode, string(body), resp.Header.Get("x-envoy-response-flags")}
	}
	var a echo.Report
	if err := json.Unmarshal(body, &a); err != nil {
		return echo.Report{}, fmt.Errorf("%s answered what no backend says: %w: %.200s", host, err, body)
	}
	return a, nil
}

// StatusError is an HTTP answer that was not 200.
type StatusError struct {
	Code        int
	Body, Flags string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("status %d %s: %.200s", e.Code, e.Flags, e.Body)
}

// Status is the HTTP status in err, 200 if there is none, and 0 if err is another error.
func Status(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if s, ok := errors.AsType[*StatusError](err); ok {
		return s.Code
	}
	return 0
}
