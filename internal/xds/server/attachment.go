package server

import (
	"context"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"

	"github.com/pilotmesh/pilot/internal/xds/protocol"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Mesh is what the server serves.
type Mesh interface {
	// Connect takes a proxy in when its first request has come: it checks what the proxy says about itself, and from
	// then on, beginning within the call or later, gives the stream its class's states by Stream.Update. It must not
	// block: it is called by a worker that other streams share. An error that carries a gRPC status ends the stream with
	// it; any other error ends it with InvalidArgument. The node belongs to the callee. ctx ends with the stream.
	Connect(ctx context.Context, node *corev3.Node, stream *Stream) (Attachment, error)
}

// Attachment is one connected stream, as the mesh sees it. Calls may come from any goroutine, but not after Close.
type Attachment interface {
	// ID names the attachment to the mesh.
	ID() string
	// Pin tells that the stream rejected content and is held back from it. The stream sees to that itself; the
	// mesh tells the user, and decides what other streams of the class are to get.
	// reason is what the client said, empty if it has taken that back since.
	Pin(pins []protocol.Pin, reason string)
	// Withhold tells what the client has not acknowledged for so long that the user is to know; nothing if there is no such thing
	// any more. Everything else goes on; what it is told replaces what it was told before.
	Withhold(now []protocol.Withheld)
	// Want tells which names the client asks for, and for which no longer, of a type that is answered proxy by proxy. The mesh answers
	// with Stream.Answer, now and whenever the answer changes, also if it is that there is nothing for this client.
	Want(t resource.Type, names, dropped []string)
	// Refuse tells that the client rejected the last answers to names, and why; with an empty reason, that it has accepted newer ones.
	Refuse(t resource.Type, names []string, reason string)
	// Close is the last call. The stream takes no more updates and answers.
	Close()
}

// Observer is told what happens on streams; counters are made of it. Calls come from many goroutines at once and
// must not block.
type Observer interface {
	// Opened and Closed bracket a stream's life.
	Opened(v protocol.Variant)
	Closed(v protocol.Variant, code codes.Code)
	// Sent: a response was written. took is how long the write was stuck in flow control and copying.
	Sent(t resource.Type, m *protocol.Message, took time.Duration)
	// Acked: a client has state s of a type. converged is the time since s was published, 0 if that is unknown.
	Acked(t resource.Type, s *resource.State, converged time.Duration)
	// Rejected: a client refused a response.
	Rejected(t resource.Type, node, reason string)
	// Expired: a request carried a nonce that is not the last one of its type.
	Expired(t resource.Type)
	// Unknown: a request asked for a type that is not served.
	Unknown(url string)
	// WriteTimeout: a stream was closed because its client did not read.
	WriteTimeout()
	// Panicked: a stream was closed because of a bug.
	Panicked()
}

// Silent is an Observer that ignores everything; embed it to observe a part.
type Silent struct{}

var _ Observer = Silent{}

// Opened does nothing.
func (Silent) Opened(protocol.Variant) {}

// Closed does nothing.
func (Silent) Closed(protocol.Variant, codes.Code) {}

// Sent does nothing.
func (Silent) Sent(resource.Type, *protocol.Message, time.Duration) {}

// Acked does nothing.
func (Silent) Acked(resource.Type, *resource.State, time.Duration) {}

// Rejected does nothing.
func (Silent) Rejected(resource.Type, string, string) {}

// Expired does nothing.
func (Silent) Expired(resource.Type) {}

// Unknown does nothing.
func (Silent) Unknown(string) {}

// WriteTimeout does nothing.
func (Silent) WriteTimeout() {}

// Panicked does nothing.
func (Silent) Panicked() {}

// Status is one stream, for people.
type Status struct {
	ID   uint64
	Node string
	// Attachment is the mesh's name for the stream; empty before the first request was taken in.
	Attachment string
	Peer       string
	Variant    protocol.Variant
	Connected  time.Time
	Types      [resource.Types]protocol.TypeStatus
	// Wants are the types that are answered proxy by proxy, of those the client asked for.
	Wants []protocol.WantStatus
}
