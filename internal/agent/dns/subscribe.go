package dns

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/pilotmesh/pilot/internal/agent/upstream"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/nds"
)

const (
	// silence is how long no response must arrive for the first table to be complete: the table is sent in several parts, which follow each
	// other. Where names change all the time, the names received within maxSilence count as complete.
	silence, maxSilence = 100 * time.Millisecond, 2 * time.Second
	// maxMessage is the size of the largest response, in bytes. The control plane sends less, unless a single name is larger.
	maxMessage = 16 << 20
)

// Subscriber keeps the table of a proxy up to date. It receives changes from the control plane on its own stream.
type Subscriber struct {
	proxy *Proxy
	dial  func() (*grpc.ClientConn, error)
	node  *corev3.Node
	kept  Kept
	log   *slog.Logger
	// table has the received names. It becomes the table of the proxy as soon as it is complete.
	table    *Table
	received bool // a response was received on this stream
	complete bool
}

// Kept stores the last received names, for an agent that starts while the control plane cannot be reached.
type Kept interface {
	// All returns the resources of a type, and Accept stores received changes of them.
	All(typeURL string) []*discoveryv3.Resource
	Accept(typeURL string, resources []*discoveryv3.Resource, removed []string)
	// Finish notes that all resources of some types were received, and Complete reports whether that was noted.
	Finish(typeURLs ...string)
	Complete(typeURL string) bool
}

// NewSubscriber returns the subscriber of a proxy. dial opens a connection to the control plane, and node is Envoy's node. The kept names
// are in force at once if they are complete.
func NewSubscriber(p *Proxy, dial func() (*grpc.ClientConn, error), node *corev3.Node, kept Kept, log *slog.Logger) *Subscriber {
	s := &Subscriber{proxy: p, dial: dial, node: upstream.AgentNode(node), kept: kept, log: log, table: &Table{}}
	s.restore()
	return s
}

// restore loads the kept names.
func (s *Subscriber) restore() {
	list := s.kept.All(nds.URL)
	if len(list) == 0 {
		return
	}
	changes, err := s.changes(&discoveryv3.DeltaDiscoveryResponse{Resources: list})
	if err != nil {
		s.log.Warn("the names that were kept are not used; the control plane sends them again", "error", err)
		return
	}
	s.table, s.complete = s.table.with(changes...), s.kept.Complete(nds.URL)
	if s.complete { // a name that is not in a part may exist
		s.proxy.table.Store(s.table)
	}
}

// Run keeps a stream until ctx is cancelled. While there is none, the last table stays in force.
func (s *Subscriber) Run(ctx context.Context) error {
	upstream.Keep(ctx, s.log, "the names of the mesh are not followed; the last ones stay in force", func(ctx context.Context) (bool, error) {
		s.received = false
		err := s.stream(ctx)
		s.proxy.connected.Store(false)
		return s.received, err
	})
	return nil
}

// stream follows the names on one stream until it ends.
func (s *Subscriber) stream(ctx context.Context) error {
	stream, err := upstream.OpenStream(ctx, s.dial, grpc.MaxCallRecvMsgSize(maxMessage))
	if err != nil {
		return err
	}
	defer stream.Close()
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{
		Node: s.node, TypeUrl: nds.URL, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: s.table.versions(),
	}); err != nil {
		return err
	}
	return s.receive(ctx, stream)
}

// receive takes responses until the stream ends.
func (s *Subscriber) receive(ctx context.Context, stream *upstream.Stream) error {
	quiet := time.NewTimer(silence)
	quiet.Stop()
	defer quiet.Stop()
	var first time.Time // of the responses
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-stream.Ended:
			return err
		case m := <-stream.Responses:
			if err := stream.Send(s.take(m)); err != nil {
				return err
			}
			if first.IsZero() {
				first = time.Now()
			}
			if !s.proxy.connected.Load() && time.Since(first) < maxSilence {
				quiet.Reset(silence)
			}
		case <-quiet.C:
			if !s.complete {
				s.log.Info("the names of the mesh are known", "names", s.table.names.Len())
			}
			s.complete = true
			s.kept.Finish(nds.URL)
			s.proxy.table.Store(s.table)
			s.proxy.connected.Store(true)
		}
	}
}

// take applies a response, and returns the request that acknowledges it. If something in the response is wrong, nothing of it is applied.
func (s *Subscriber) take(m *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryRequest {
	q := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()}
	if m.GetTypeUrl() != nds.URL {
		return q
	}
	s.received = true
	changes, err := s.changes(m)
	if err != nil {
		s.log.Error("names from the control plane are rejected; the last ones stay in force", "error", err)
		q.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
		return q
	}
	s.table = s.table.with(changes...)
	s.kept.Accept(nds.URL, m.GetResources(), m.GetRemovedResources())
	if s.complete {
		s.proxy.table.Store(s.table)
	}
	return q
}

// changes are the changes of the table that a response makes.
func (s *Subscriber) changes(m *discoveryv3.DeltaDiscoveryResponse) (list []omap.Change[omap.Name, *name], err error) {
	for _, host := range m.GetRemovedResources() {
		list = append(list, omap.Del[omap.Name, *name](omap.Name(canonical(host))))
	}
	for _, r := range m.GetResources() {
		var entries []nds.Entry
		if err := nds.Decode(r.GetResource().GetValue(), func(e nds.Entry) { entries = append(entries, e) }); err != nil {
			return nil, fmt.Errorf("%.80q: %w", r.GetName(), err)
		}
		if len(entries) != 1 || entries[0].Host != r.GetName() {
			return nil, fmt.Errorf("%.80q: the table does not have this name, and no other", r.GetName())
		}
		host, n, err := newName(entries[0], r.GetVersion())
		if err != nil {
			return nil, err
		}
		list = append(list, omap.Put(host, n))
	}
	if s.table.names.Len()+len(m.GetResources()) > maxNames {
		return nil, fmt.Errorf("there are more than %d names", maxNames)
	}
	return list, nil
}
