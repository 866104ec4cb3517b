package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/pilotmesh/pilot/test/kit/echo"
)

// echoMethod takes and returns a google.protobuf.StringValue, so that no code needs to be generated; the answer is a
// echo.Report as JSON.
const (
	echoService = "pilot.test.Echo"
	echoMethod  = "/" + echoService + "/Echo"
)

// echoer is the type that gRPC checks handlers against.
type echoer interface {
	echoGRPC(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error)
}

func (s *server) openGRPC(ctx context.Context, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	g := grpc.NewServer()
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: echoService, HandlerType: (*echoer)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: handleEcho}},
	}, s)
	alive := health.NewServer()
	healthpb.RegisterHealthServer(g, alive)
	s.servers.OnClose(func(ctx context.Context) error {
		alive.Shutdown()
		stop := context.AfterFunc(ctx, g.Stop)
		defer stop()
		g.GracefulStop()
		return nil
	})
	s.servers.Run("gRPC", func() error { return g.Serve(l) })
	return nil
}

// handleEcho has the form that generated code has.
//
//nolint:revive // the order of arguments is gRPC's
func handleEcho(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	in := new(wrapperspb.StringValue)
	if err := decode(in); err != nil {
		return nil, err
	}
	call := func(ctx context.Context, in any) (any, error) {
		return srv.(echoer).echoGRPC(ctx, in.(*wrapperspb.StringValue))
	}
	if intercept == nil {
		return call(ctx, in)
	}
	return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: echoMethod}, call)
}

func (s *server) echoGRPC(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	from, _ := peer.FromContext(ctx)
	report := s.about("gRPC", from.Addr, from.LocalAddr)
	report.Path, report.Bytes = echoMethod, int64(len(in.GetValue()))
	if headers, ok := metadata.FromIncomingContext(ctx); ok {
		report.Headers = http.Header(headers)
		if host := headers.Get(":authority"); len(host) > 0 {
			report.Host = host[0]
		}
	}
	if info, ok := from.AuthInfo.(credentials.TLSInfo); ok {
		report.TLS = echo.Encryption(&info.State)
	}
	text, err := json.Marshal(report)
	if err != nil {
		return nil, fmt.Errorf("encoding the report: %w", err)
	}
	return wrapperspb.String(string(text)), nil
}
