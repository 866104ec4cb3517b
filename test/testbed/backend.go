package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &Backend{Name: name, Port: l.Addr().(*net.TCPAddr).Port, close: func() error { cancel(); return l.Close() }}
	b.serving.Go(func() {
		for {
			conn, err := l.Accept()
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
