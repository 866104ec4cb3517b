package run

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
)

// GRPC is the actor that serves s on l. Told to stop, it calls leave, which should end the calls that never end by
// themselves, lets the others finish for as long as drain, then cuts them off.
func GRPC(name string, l net.Listener, s *grpc.Server, leave func(), drain time.Duration) Actor {
	return Actor{Name: name, Run: func(ctx context.Context) error { return serveGRPC(ctx, l, s, leave, drain) }}
}

// ListenGRPC is GRPC for an address that is opened when the actor starts; the actor is ready when it listens.
func ListenGRPC(name, addr string, s *grpc.Server, leave func(), drain time.Duration) Actor {
	ready := make(chan struct{})
	return Actor{Name: name, Ready: ready, Run: func(ctx context.Context) error {
		l, err := listen(ctx, addr)
		if err != nil {
			return err
		}
		close(ready)
		return serveGRPC(ctx, l, s, leave, drain)
	}}
}

func serveGRPC(ctx context.Context, l net.Listener, s *grpc.Server, leave func(), drain time.Duration) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	leave()
	graceful := make(chan struct{})
	go func() {
		s.GracefulStop()
		close(graceful)
	}()
	patience := time.NewTimer(drain)
	defer patience.Stop()
	select {
	case <-graceful:
	case <-patience.C:
		s.Stop() // makes GracefulStop return
		<-graceful
	}
	return <-served
}
