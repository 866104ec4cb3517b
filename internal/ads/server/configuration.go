package server

import (
	"bytes"
	"context"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/ads/configuration"
	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// The metadata of a client that reads configuration.
const (
	generatorKey = "GENERATOR"
	generatorAPI = "api"
	clusterKey   = "CLUSTER_ID"
)

// ConfigurationReader is a client that reads objects of configuration in place of the resources of a proxy.
type ConfigurationReader struct {
	// Node is its node id, and Cluster the ID of its cluster; empty if it does not say.
	Node, Cluster string
	// Caller is the authenticated client; zero if it is not known.
	Caller identity.Caller
}

// Configuration is what such a client is to have. Its methods may be called from any goroutine.
type Configuration interface {
	// Content returns the resources of a type; false if they are not known yet. A type that is not served has none.
	Content(url string) (configuration.Map, bool)
	// Close is the last call.
	Close()
}

// ConfigurationFunc admits a reader, and calls changed whenever some content has changed. It may block. Its error has a gRPC status.
type ConfigurationFunc func(ctx context.Context, reader ConfigurationReader, changed func()) (Configuration, error)

// reading is a stream whose client reads configuration.
type reading struct {
	content Configuration
	wake    chan struct{} // has a token if there may be something to send
	ended   chan struct{} // is closed when nothing is sent any more

	mu   sync.Mutex
	talk *configuration.Conversation
}

// readsConfiguration returns the node of the first request of a stream if its client reads configuration; nil for others.
func (s *Stream) readsConfiguration(q *protocol.Request) *corev3.Node {
	if s.server.options.Configuration == nil || !bytes.Contains(q.Node, []byte(generatorKey)) { // most nodes are not decoded twice
		return nil
	}
	node, err := request.DecodeNode(q.Node)
	if err != nil || node.GetMetadata().GetFields()[generatorKey].GetStringValue() != generatorAPI {
		return nil
	}
	return node
}

// read makes the stream one of a client that reads configuration. It runs on the handler goroutine.
func (s *Stream) read(node *corev3.Node) error {
	s.pages.Store(true)
	r := &reading{talk: configuration.New(s.variant, s.server.options.ControlPlane), wake: make(chan struct{}, 1), ended: make(chan struct{})}
	ctx := s.grpc.Context()
	reader := ConfigurationReader{Node: node.GetId(), Cluster: node.GetMetadata().GetFields()[clusterKey].GetStringValue(), Caller: s.caller}
	content, err := s.server.options.Configuration(ctx, reader, r.changed)
	if err != nil {
		return err
	}
	s.server.options.Log.Info("a client reads configuration", "stream", s.id, "node", reader.Node, "cluster", reader.Cluster, "peer", s.Peer())
	r.content = content
	s.reading = r
	go s.writeConfiguration(ctx)
	return nil
}

// changed wakes the writer.
func (r *reading) changed() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// stop waits until nothing is written any more. The context of the stream has been cancelled.
func (r *reading) stop() {
	<-r.ended
	r.content.Close()
}

// ask takes a request.
func (s *Stream) ask(q *protocol.Request) error {
	r := s.reading
	r.mu.Lock()
	refused, tooMany := r.talk.Ask(q)
	r.mu.Unlock()
	if tooMany {
		return status.Error(codes.ResourceExhausted, "the client asks for too many types; ask for the kinds of configuration only")
	}
	if refused != "" {
		s.server.options.Log.Warn("a client refuses configuration", "stream", s.id, "type", clip(q.URL), "reason", refused)
	}
	r.changed()
	return nil
}

// writeConfiguration sends what there is to send, until the stream ends.
func (s *Stream) writeConfiguration(ctx context.Context) {
	r := s.reading
	defer close(r.ended)
	defer s.guard()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		r.mu.Lock()
		responses := r.talk.Next(r.content.Content)
		r.mu.Unlock()
		for _, parts := range responses {
			out := make(mem.BufferSlice, 0, len(parts))
			for _, p := range parts[1:] {
				out = append(out, mem.SliceBuffer(p))
			}
			out = append(out, notifyingBuffer(parts[0], s.written)) // the order of fields does not matter
			s.lastProgress.Store(time.Now().UnixNano())
			s.unwritten.Add(1)
			if err := s.grpc.SendMsg(&encoded{out}); err != nil {
				s.end(err)
				return
			}
		}
	}
}
