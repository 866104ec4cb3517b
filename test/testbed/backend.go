package testbed

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Answer is what an HTTP backend tells of itself and of the request it got.
type Answer struct {
	Backend string      `json:"backend"`
	Proto   string      `json:"proto"`
	Host    string      `json:"host"`
	Path    string      `json:"path"`
	Headers http.Header `json:"headers"`
}

// Backend is a server that says who it is. Close ends it.
type Backend struct {
	Name    string
	Port    int
	close   func() error
	serving sync.WaitGroup
	got     atomic.Int64
	failing atomic.Int64
}

// Requests is how many HTTP requests have come.
func (b *Backend) Requests() int { return int(b.got.Load()) }

// Fail makes the backend answer the next n HTTP requests with 503.
func (b *Backend) Fail(n int) { b.failing.Store(int64(n)) }

// Close stops the backend and waits until it has ended.
func (b *Backend) Close() error {
	err := b.close()
	b.serving.Wait()
	return err
}

// StartHTTP serves HTTP/1.1 and HTTP/2 without TLS on a port of loopback; 0 means any free one.
func StartHTTP(name string, port int) (*Backend, error) {
	l, err := net.Listen("tcp", Loopback(port))
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	b := &Backend{Name: name, Port: l.Addr().(*net.TCPAddr).Port}
	server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(b.answer), ReadHeaderTimeout: 10 * time.Second}
	b.close = server.Close
	b.serving.Go(func() { _ = server.Serve(l) }) // ends by Close
	return b, nil
}

func (b *Backend) answer(w http.ResponseWriter, r *http.Request) {
	b.got.Add(1)
	if b.failing.Add(-1) >= 0 {
		http.Error(w, b.Name+" fails as it was told to", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("content-type", "application/json")
	_ = json.NewEncoder(w).Encode(Answer{Backend: b.Name, Proto: r.Proto, Host: r.Host, Path: r.URL.Path, Headers: r.Header})
}

// StartTCP serves a protocol in which the server speaks first: it says its name, and then repeats what it hears.
func StartTCP(name string) (*Backend, error) {
	return startGreeting(name, func(l net.Listener) net.Listener { return l })
}

// StartTLS is StartTCP in TLS, with a certificate that nobody has signed.
func StartTLS(name string) (*Backend, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(24 * time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}}
	return startGreeting(name, func(l net.Listener) net.Listener { return tls.NewListener(l, config) })
}

func startGreeting(name string, wrap func(net.Listener) net.Listener) (*Backend, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &Backend{Name: name, Port: l.Addr().(*net.TCPAddr).Port, close: func() error { cancel(); return l.Close() }}
	wrapped := wrap(l)
	b.serving.Go(func() {
		for {
			conn, err := wrapped.Accept()
			if err != nil {
				return
			}
			b.serving.Go(func() {
				defer conn.Close()
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				defer stop()
				if _, err := fmt.Fprintln(conn, name); err == nil {
					_, _ = io.Copy(conn, conn) // until the peer has had enough
				}
			})
		}
	})
	return b, nil
}

// Greeting connects to a local port and returns the name that is said there; with a server name it speaks TLS.
func Greeting(ctx context.Context, port int, serverName string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", Loopback(port))
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
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

// Call sends one HTTP request to a local port, as if for host, and returns who answered. Any status but 200 is an error.
func Call(ctx context.Context, client *http.Client, port int, host, path string, headers ...string) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+Loopback(port)+path, nil)
	if err != nil {
		return Answer{}, err
	}
	req.Host = host
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return Answer{}, &StatusError{resp.StatusCode, string(body), resp.Header.Get("x-envoy-response-flags")}
	}
	var a Answer
	if err := json.Unmarshal(body, &a); err != nil {
		return Answer{}, fmt.Errorf("%s answered what no backend says: %w: %.200s", host, err, body)
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
