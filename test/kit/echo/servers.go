// Package echo is the common part of test servers that answer with a description of the request: the Report that is their answer, and Servers, which
// are listeners that are closed together.
//
// Each listener has a goroutine, and each connection that is not HTTP has another. Close waits for all of them. A Servers may
// be used from several goroutines, but nothing may be added to it once Close was called.
package echo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Servers are listeners that serve until they are closed together.
type Servers struct {
	running sync.WaitGroup
	failed  chan error

	mu      sync.Mutex
	closers []func(context.Context) error // in the order they were added
	open    map[net.Conn]bool             // connections of TCP
	hurried bool                          // connections are closed as soon as they come
}

// NewServers returns servers without a listener.
func NewServers() *Servers {
	return &Servers{failed: make(chan error, 1), open: map[net.Conn]bool{}}
}

// Failed gives the first error that ended a listener before Close did.
func (s *Servers) Failed() <-chan error { return s.failed }

// OnClose adds something to be closed. Work under way may continue until the context ends.
func (s *Servers) OnClose(f func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, f)
}

// Run starts a loop that ends when its listener is closed.
func (s *Servers) Run(what string, loop func() error) {
	s.running.Go(func() {
		err := loop()
		if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) {
			return
		}
		select {
		case s.failed <- fmt.Errorf("%s: %w", what, err):
		default: // another one has failed before
		}
	})
}

// Close closes all listeners at once, lets requests under way continue until ctx ends, and waits for every goroutine.
func (s *Servers) Close(ctx context.Context) error {
	s.mu.Lock()
	closers := s.closers
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, s.hurry)
	defer stop()
	errs := make([]error, len(closers))
	var closing sync.WaitGroup
	for i, f := range closers {
		closing.Go(func() { errs[i] = f(ctx) })
	}
	closing.Wait()
	s.running.Wait()
	return errors.Join(errs...)
}

// CloseNow is Close without time for requests under way.
func (s *Servers) CloseNow() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return s.Close(ctx)
}

// hurry closes the open connections and all later ones.
func (s *Servers) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurried = true
	for conn := range s.open {
		conn.Close()
	}
}

// NewHTTP makes a server of HTTP/1.1 and HTTP/2, with and without TLS.
func NewHTTP(h http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{Handler: h, Protocols: &protocols, ReadHeaderTimeout: 10 * time.Second}
}

// HTTP serves the connections of l.
func (s *Servers) HTTP(l net.Listener, server *http.Server) {
	s.OnClose(func(ctx context.Context) error {
		if ctx.Err() != nil {
			return server.Close() // and with it l, as Serve returns
		}
		if err := server.Shutdown(ctx); err != nil {
			return errors.Join(fmt.Errorf("requests did not end in time: %w", err), server.Close())
		}
		return nil
	})
	s.Run("HTTP", func() error { return server.Serve(l) })
}

// TCP accepts the connections of l. Each is talk's until talk returns; then it is closed.
func (s *Servers) TCP(l net.Listener, talk func(net.Conn)) {
	s.OnClose(func(context.Context) error { return l.Close() })
	s.Run("TCP", func() error {
		for {
			conn, err := l.Accept()
			if err != nil {
				return err
			}
			s.add(conn)
			s.running.Go(func() {
				defer s.drop(conn)
				talk(conn)
			})
		}
	})
}

func (s *Servers) add(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[conn] = true
	if s.hurried {
		conn.Close()
	}
}

func (s *Servers) drop(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
	conn.Close()
}

// ServerFirst talks a protocol in which the server speaks first: it says its report as a line, and then echoes its input.
func ServerFirst(name, version string) func(net.Conn) {
	return func(conn net.Conn) {
		r := About("tcp-server-first", conn.RemoteAddr(), conn.LocalAddr())
		r.Name, r.Version = name, version
		if json.NewEncoder(conn).Encode(r) == nil {
			_, _ = io.Copy(conn, conn) // until the peer has had enough
		}
	}
}

// ClientFirst talks a protocol in which the client speaks first: it answers every line with its report.
func ClientFirst(name, version string) func(net.Conn) {
	return func(conn net.Conn) {
		r := About("tcp-client-first", conn.RemoteAddr(), conn.LocalAddr())
		r.Name, r.Version = name, version
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			r.Bytes = int64(len(lines.Bytes()))
			if json.NewEncoder(conn).Encode(r) != nil {
				return
			}
		}
	}
}
