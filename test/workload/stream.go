package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"

	"github.com/pilotmesh/pilot/test/kit/echo"
)

func (s *server) openServerFirst(ctx context.Context, address string) error {
	return s.openTCP(ctx, address, echo.ServerFirst(s.name, s.version))
}

func (s *server) openClientFirst(ctx context.Context, address string) error {
	return s.openTCP(ctx, address, echo.ClientFirst(s.name, s.version))
}

// openTCP accepts connections; talk has one until it returns.
func (s *server) openTCP(ctx context.Context, address string, talk func(net.Conn)) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	s.servers.TCP(l, talk)
	return nil
}

func (s *server) openUDP(ctx context.Context, address string) error {
	conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	s.servers.OnClose(func(context.Context) error { return conn.Close() })
	s.servers.Run("UDP", func() error {
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
