package server

import (
	"context"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/ads/protocol/response"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Mesh provides the states that the server serves.
type Mesh interface {
	// Connect admits a proxy when its first request has arrived. It checks the node, and from then on the mesh passes the
	// states of the proxy's class to Stream.Update; the first call may come before Connect returns. Connect must not block,
	// because it runs on a worker that other streams share. An error with a gRPC status ends the stream with that status;
	// any other error ends it with InvalidArgument. The mesh may keep the node. ctx ends with the stream.
	Connect(ctx context.Context, node *corev3.Node, stream *Stream) (Attachment, error)
}

// Attachment is the mesh's side of a connected stream. Its methods may be called from any goroutine, but not after Close.
type Attachment interface {
	// ID is the mesh's name for the attachment.
	ID() string
	// Pin says that the client rejected content and that the stream holds it back. The mesh reports it to the user; other
	// streams of the class are not affected. reason is the text of the NACK, empty if the client has sent an ACK since.
	Pin(pins []reject.Pin, reason string)
	// NoteUnacknowledged lists what the client has not acknowledged for so long that the user must know. The list replaces the one of the
	// last call; an empty list means that there is nothing any more.
	NoteUnacknowledged(now []protocol.Unacknowledged)
	// Want says to which names of a type that is answered per proxy the client subscribed, and from which it unsubscribed. The
	// mesh calls Stream.Answer now and whenever an answer changes, even if there is nothing for this client.
	Want(t resource.Type, names, dropped []string)
	// NoteFull says that the client is refused further virtual hosts on demand, and why. The mesh reports it to the user.
	NoteFull(reason string)
	// Refuse says that the client rejected the last answers to names. An empty reason says that it has accepted newer ones.
	Refuse(t resource.Type, names []string, reason string)
	// Health says that the agent of the client reports the health of its application. message says why it is not healthy.
	Health(healthy bool, message string)
	// Applied reports resources that the client's Envoy has received and does not use yet, and its draining connections. It replaces the last report.
	Applied(warming []protocol.Warming, draining protocol.Draining)
	// Close is the last call. The stream ignores later updates and answers.
	Close()
}

// Observer receives events of streams for metrics. Its methods are called from many goroutines at the same time and must not
// block.
type Observer interface {
	// Opened and Closed are called at the beginning and at the end of a stream.
	Opened(v protocol.Variant)
	Closed(v protocol.Variant, code codes.Code)
	// Sent is called when gRPC has accepted a response. took is the time of the call, which includes waiting for flow control.
	Sent(t resource.Type, m *response.Message, took time.Duration)
	// Acked is called when a client has acknowledged state s of a type. converged is the time since s was published; 0 if that
	// is unknown.
	Acked(t resource.Type, s *resource.State, converged time.Duration)
	// Rejected is called for each NACK.
	Rejected(t resource.Type, node, reason string)
	// Expired is called for each request with a stale nonce.
	Expired(t resource.Type)
	// Unknown is called for each request of a type that the server does not serve.
	Unknown(url string)
	// WriteTimeout is called when a stream is closed because its client does not read.
	WriteTimeout()
	// Crowded is called when an idle connection is closed because there are too many.
	Crowded()
	// Panicked is called when a stream is closed because of a panic.
	Panicked()
}

// silentObserver is an Observer that ignores all events. Embed it to observe only some.
type silentObserver struct{}

var _ Observer = silentObserver{}

// Opened does nothing.
func (silentObserver) Opened(protocol.Variant) {}

// Closed does nothing.
func (silentObserver) Closed(protocol.Variant, codes.Code) {}

// Sent does nothing.
func (silentObserver) Sent(resource.Type, *response.Message, time.Duration) {}

// Acked does nothing.
func (silentObserver) Acked(resource.Type, *resource.State, time.Duration) {}

// Rejected does nothing.
func (silentObserver) Rejected(resource.Type, string, string) {}

// Expired does nothing.
func (silentObserver) Expired(resource.Type) {}

// Unknown does nothing.
func (silentObserver) Unknown(string) {}

// WriteTimeout does nothing.
func (silentObserver) WriteTimeout() {}

// Crowded does nothing.
func (silentObserver) Crowded() {}

// Panicked does nothing.
func (silentObserver) Panicked() {}

// Status describes one stream. It is meant for debug pages and metrics.
type Status struct {
	ID   uint64
	Node string
	// Attachment is the mesh's name for the stream; empty before the first request is processed.
	Attachment string
	Peer       string
	Variant    protocol.Variant
	Connected  time.Time
	// Alone is for how long the client's agent had no control plane before the stream, as it says; 0 if it had one, or does not say.
	Alone time.Duration
	Types protocol.Progress
	// Split is set if route configurations are sent without their virtual hosts, which are resources of their own.
	Split bool
	// Wants are the types that are answered per proxy and that the client asked for.
	Wants []protocol.WantStatus
}

// Lister lists the connected streams. It may be called on any goroutine. *Server implements it.
type Lister interface {
	Streams() []Status
}
