package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// connections are those of a listener that are open.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]bool
}

func (c *connections) add(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[conn] = true
}

func (c *connections) drop(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
	conn.Close()
}

// hurry sets a deadline on what is open.
func (c *connections) hurry(deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		_ = conn.SetDeadline(deadline) // fails on what is closed, which is the aim
	}
}

func (s *server) openServerFirst(ctx context.Context, address string) error {
	return s.openTCP(ctx, address, func(conn net.Conn) {
		if err := json.NewEncoder(conn).Encode(s.about("tcp-server-first", conn.RemoteAddr(), conn.LocalAddr())); err == nil {
			_, _ = io.Copy(conn, conn) // until the peer has had enough
		}
	})
}

func (s *server) openClientFirst(ctx context.Context, address string) error {
	return s.openTCP(ctx, address, func(conn net.Conn) {
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			r := s.about("tcp-client-first", conn.RemoteAddr(), conn.LocalAddr())
			r.Bytes = int64(len(lines.Bytes()))
			if json.NewEncoder(conn).Encode(r) != nil {
				return
			}
		}
	})
}

// openTCP accepts connections; talk has one until it returns.
func (s *server) openTCP(ctx context.Context, address string, talk func(net.Conn)) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	all := &connections{open: map[net.Conn]bool{}}
	s.onClose(func(ctx context.Context) error {
		if deadline, ok := ctx.Deadline(); ok {
			all.hurry(deadline)
		}
		return l.Close()
	})
	s.run("TCP", func() error {
		for {
			conn, err := l.Accept()
			if err != nil {
				return err
			}
			all.add(conn)
			s.running.Go(func() {
				defer all.drop(conn)
				talk(conn)
			})
		}
	})
	return nil
}

func (s *server) openUDP(ctx context.Context, address string) error {
	conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	s.onClose(func(context.Context) error { return conn.Close() })
	s.run("UDP", func() error {
		buffer := make([]byte, 64<<10)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return err
			}
			r := s.about("udp", from, conn.LocalAddr())
			r.Bytes = int64(n)
			if text, err := json.Marshal(r); err == nil {
				_, _ = conn.WriteTo(text, from) // datagrams may get lost
			}
		}
	})
	return nil
}
