package main

import (
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// recording has the messages that a stream was sent, by type, as they were on the wire.
type recording struct {
	mu       sync.Mutex
	messages [types][][]byte
}

func (r *recording) add(t resource.Type, message []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages[t] = append(r.messages[t], message)
}

// bare is a gRPC server with the product's settings and nothing behind it: it answers the first request for a type with
// a recording. The memory that a stream retains there is the part of grpc-go and the client.
type bare struct {
	rpc   *grpc.Server
	addr  string
	group sync.WaitGroup

	mu      sync.Mutex
	streams []grpc.ServerStream
}

func serveBare(v variant, r *recording) (*bare, error) {
	options := server.New(nil, server.Options{}).GRPC()
	b := &bare{}
	b.rpc = grpc.NewServer(append(options,
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			b.mu.Lock()
			b.streams = append(b.streams, s)
			b.mu.Unlock()
			return replay(v, r, s)
		}))...)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.addr = listener.Addr().String()
	b.group.Go(func() { _ = b.rpc.Serve(listener) }) // it ends with Stop
	return b, nil
}

func (b *bare) close() {
	b.rpc.Stop()
	b.group.Wait()
}

// broadcast sends a message to all streams. They must have all they asked for.
func (b *bare) broadcast(message []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.streams {
		if err := s.SendMsg(buffers(message)); err != nil {
			return err
		}
	}
	return nil
}

// replay answers requests that are no acknowledgements.
func replay(v variant, r *recording, s grpc.ServerStream) error {
	for {
		t, first, err := next(v, s)
		if err != nil {
			return err
		}
		if !first {
			continue
		}
		for _, m := range r.messages[t] {
			if err := s.SendMsg(buffers(m)); err != nil {
				return err
			}
		}
	}
}

// next reads a request. It is a function of its own so that nothing of the request is alive while the next is waited for.
func next(v variant, s grpc.ServerStream) (t resource.Type, first bool, err error) {
	var m message
	if err := s.RecvMsg(&m); err != nil {
		return 0, false, err
	}
	defer m.free()
	wire := request.Delta
	if v == sotw {
		wire = request.StateOfTheWorld
	}
	q, err := request.Scan(wire, m.data.Materialize())
	if err != nil {
		return 0, false, err
	}
	t, _ = resource.ParseType(string(q.URL))
	return t, len(q.Nonce) == 0, nil
}
