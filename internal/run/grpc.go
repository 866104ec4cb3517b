package run

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// minPing is the shortest interval at which a client may ping. Our bootstrap has Envoy ping every 30 s, and gRPC clients ping no more often
// than every 10 s.
const minPing = 5 * time.Second

// AllowPings returns the option without which a gRPC server closes the connection of an idle Envoy after two minutes: gRPC allows one ping in
// five minutes by default, and answers further ones with "too many pings" (google.golang.org/grpc/keepalive, EnforcementPolicy).
func AllowPings() grpc.ServerOption {
	return grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true})
}

// GRPC returns an actor that serves s on l. When it is stopped it accepts no connection any more and calls leave, which should end
// the calls that do not end by themselves. It waits for all calls for at most drain, and aborts the rest. The context of leave has
// that deadline.
func GRPC(name string, l net.Listener, s *grpc.Server, leave func(context.Context), drain time.Duration) Actor {
	return Actor{Name: name, Run: func(ctx context.Context) error { return serveGRPC(ctx, l, s, leave, drain) }}
}

// ListenGRPC is like GRPC, but opens the address when the actor starts. The actor is ready when it listens.
func ListenGRPC(name, addr string, s *grpc.Server, leave func(context.Context), drain time.Duration) Actor {
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

func serveGRPC(ctx context.Context, l net.Listener, s *grpc.Server, leave func(context.Context), drain time.Duration) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	var leaving sync.WaitGroup
	leaving.Go(func() { leave(ctx) })
	graceful := make(chan struct{})
	go func() {
		s.GracefulStop()
		close(graceful)
	}()
	select {
	case <-graceful:
	case <-ctx.Done():
		s.Stop() // this makes GracefulStop return
		<-graceful
	}
	cancel()
	leaving.Wait()
	return <-served
}
