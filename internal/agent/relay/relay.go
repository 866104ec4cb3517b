// Package relay passes Envoy's xDS stream on to the control plane. Envoy speaks plain gRPC on a unix socket that only its user can
// open; the relay speaks TLS and shows who the agent is.
//
// Invariants: Each stream of Envoy has a connection of its own, so a stream that begins shows the newest certificate or token. Messages
// pass through unread, in order, and none is kept: a side that does not read holds back the other one.
//
// Goroutines: two per stream, which end with it.
package relay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // which registers the codec whose name the relay uses
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/agent/upstream"
)

// Relay passes streams on.
type Relay struct {
	dialer *upstream.Dialer
	log    *slog.Logger
	// refused is set while the control plane does not accept the certificate of the workload, so that the next stream shows the token.
	refused atomic.Bool
	// failed is set while the control plane cannot be reached, so that this is logged once.
	failed atomic.Bool
}

// New returns a relay.
func New(d *upstream.Dialer, log *slog.Logger) *Relay { return &Relay{dialer: d, log: log} }

// lasting is after which time a stream counts as accepted although nothing was received.
const lasting = time.Second

const service = "envoy.service.discovery.v3.AggregatedDiscoveryService"

// Server returns a gRPC server for Envoy's streams.
func (r *Relay) Server() *grpc.Server {
	g := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.MaxRecvMsgSize(math.MaxInt32))
	desc := grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil), Metadata: "envoy/service/discovery/v3/ads.proto"}
	for _, name := range []string{"StreamAggregatedResources", "DeltaAggregatedResources"} {
		desc.Streams = append(desc.Streams, grpc.StreamDesc{
			StreamName: name, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, down grpc.ServerStream) error { return r.pass(name, down) },
		})
	}
	g.RegisterService(&desc, r)
	return g
}

// pass passes one stream on until one side ends it.
func (r *Relay) pass(method string, down grpc.ServerStream) error {
	conn, err := r.dialer.Dial(!r.refused.Load())
	if err != nil {
		return r.unreachable(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is buffered
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+service+"/"+method,
		grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		r.distrust(conn)
		return r.unreachable(err)
	}
	began := time.Now()
	// A client that reconnects and has everything is sent nothing, so a stream that lasts counts as one that was answered.
	var once sync.Once
	reached := func() { once.Do(func() { r.reached(conn) }) }
	lasts := time.AfterFunc(lasting, reached)
	defer lasts.Stop()
	go forward(down, up) // it ends when this function has returned, because receiving from Envoy then fails
	answered := false
	for {
		var f frame
		if err = up.RecvMsg(&f); err != nil {
			break
		}
		answered = true
		reached()
		if err = down.SendMsg(&f); err != nil {
			break
		}
	}
	if down.Context().Err() != nil {
		return nil // Envoy has ended the stream
	}
	if errors.Is(err, io.EOF) {
		err = status.Error(codes.Unavailable, "the control plane has ended the stream")
	}
	if !answered && time.Since(began) < lasting {
		r.distrust(conn)
		return r.unreachable(err)
	}
	r.log.Info("the stream from the control plane has ended", "after", time.Since(began).Round(time.Millisecond).String(), "reason", status.Convert(err).Message())
	return err
}

// forward passes on what Envoy sends. If the control plane takes no more, receiving from it says why.
func forward(down grpc.ServerStream, up grpc.ClientStream) {
	for {
		var f frame
		err := down.RecvMsg(&f)
		if err == nil {
			err = up.SendMsg(&f)
		} else if errors.Is(err, io.EOF) {
			err = errors.Join(io.EOF, up.CloseSend())
		}
		if err != nil {
			return
		}
	}
}

// distrust makes the next stream show the other of certificate and token.
func (r *Relay) distrust(c *upstream.Connection) { r.refused.Store(c.Shows == "certificate") }

// reached logs that the control plane answers.
func (r *Relay) reached(c *upstream.Connection) {
	r.failed.Store(false)
	r.log.Info("connected to the control plane over TLS", "address", r.dialer.Address, "shows", c.Shows)
}

// unreachable logs once that the control plane does not answer.
func (r *Relay) unreachable(err error) error {
	if _, ok := status.FromError(err); !ok {
		err = status.Error(codes.Unavailable, err.Error())
	}
	if !r.failed.Swap(true) {
		r.log.Warn("the control plane cannot be reached over TLS; Envoy keeps what it has, and tries again", "address", r.dialer.Address, "error", status.Convert(err).Message())
	}
	return err
}

// frame is a message that is not read.
type frame struct{ data mem.BufferSlice }

// raw is a codec that leaves messages as they are. It has the name of protobuf's, which is in the content type.
type raw struct{}

// Marshal implements encoding.CodecV2.
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return encoding.GetCodecV2("proto").Marshal(v)
	}
	return f.data, nil
}

// Unmarshal implements encoding.CodecV2. The message is released by who sends it.
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return encoding.GetCodecV2("proto").Unmarshal(data, v)
	}
	data.Ref()
	f.data = data
	return nil
}

// Name implements encoding.CodecV2.
func (raw) Name() string { return "proto" }
