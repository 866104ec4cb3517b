package run

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// endless is a service with one call that ends when it is cancelled, or when leave is closed.
func endless(asked chan<- struct{}, leave <-chan struct{}) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{ServiceName: "test.Endless", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: "Call", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, s grpc.ServerStream) error {
			close(asked)
			select {
			case <-leave:
				return status.Error(codes.Unavailable, "leaving")
			case <-s.Context().Done():
				return s.Context().Err()
			}
		},
	}}}
}

func TestGRPC(t *testing.T) {
	for name, obeys := range map[string]bool{"obeys": true, "cut off": false} {
		t.Run(name, func(t *testing.T) {
			addr := free(t)
			asked, leave := make(chan struct{}), make(chan struct{})
			s := grpc.NewServer()
			s.RegisterService(endless(asked, leave), nil)
			a := ListenGRPC("xds", addr, s, func(context.Context) {
				if obeys {
					close(leave)
				}
			}, 10*time.Millisecond)
			ctx, cancel := context.WithCancel(t.Context())
			g := New(quiet(), time.Minute)
			g.Add(a)
			stopped := make(chan error)
			go func() { stopped <- g.Run(ctx) }()
			<-a.Ready
			conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			call, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/test.Endless/Call")
			if err != nil {
				t.Fatal(err)
			}
			<-asked
			cancel()
			if err := call.RecvMsg(nil); status.Code(err) != codes.Unavailable {
				t.Errorf("the call ended with %v", err)
			}
			if err := <-stopped; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

func TestAddressTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, a := range []Actor{
		ListenGRPC("xds", l.Addr().String(), grpc.NewServer(), func(context.Context) {}, time.Second),
		ListenHTTP("pages", l.Addr().String(), http.NotFoundHandler(), time.Second, quiet()),
	} {
		g := New(quiet(), time.Minute)
		g.Add(a)
		if err := g.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "choose another") {
			t.Errorf("%s on a taken address: %v", a.Name, err)
		}
	}
}
