package mcp

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
)

// server serves what a test puts into it, in one of the variants.
type server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t       *testing.T
	address string
	grpc    *grpc.Server

	mu      sync.Mutex
	delta   bool
	refuse  codes.Code
	silent  []string // kinds that are never answered
	items   map[string]map[string]*anypb.Any
	changed chan struct{}
	heard   []string // of requests
	tokens  []string
}

func newServer(t *testing.T) *server {
	s := &server{t: t, items: map[string]map[string]*anypb.Any{}, changed: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	s.serve(l)
	t.Cleanup(func() { s.grpc.Stop() })
	return s
}

func (s *server) serve(l net.Listener) {
	s.grpc = grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc, s)
	go func() { _ = s.grpc.Serve(l) }()
}

// restart ends all connections and listens again.
func (s *server) restart() {
	s.t.Helper()
	s.grpc.Stop()
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.serve(l)
}

// edit changes the resources, and wakes the streams.
func (s *server) edit(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) put(url, name string, spec proto.Message) {
	body, err := anypb.New(spec)
	if err != nil {
		s.t.Fatal(err)
	}
	s.putBody(url, name, body)
}

func (s *server) putBody(url, name string, body *anypb.Any) {
	one, err := anypb.New(&mcpv1.Resource{Metadata: &mcpv1.Metadata{Name: name}, Body: body})
	if err != nil {
		s.t.Fatal(err)
	}
	s.edit(func() {
		if s.items[url] == nil {
			s.items[url] = map[string]*anypb.Any{}
		}
		s.items[url][name] = one
	})
}

func (s *server) remove(url string, names ...string) {
	s.edit(func() {
		for _, name := range names {
			delete(s.items[url], name)
		}
	})
}

func (s *server) note(ctx context.Context, line string) (refuse codes.Code, changed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line != "" {
		s.heard = append(s.heard, line)
	}
	s.tokens = metadata.ValueFromIncomingContext(ctx, "authorization")
	return s.refuse, s.changed
}

func (s *server) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.heard, "\n")
}

func (s *server) list(url string) (list []*anypb.Any, silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.items[url])) {
		list = append(list, s.items[url][name])
	}
	return list, slices.Contains(s.silent, url[strings.LastIndexByte(url, '/')+1:])
}

func requests[Q any](ctx context.Context, recv func() (Q, error)) <-chan Q {
	in := make(chan Q)
	go func() {
		defer close(in)
		for {
			q, err := recv()
			if err != nil {
				return
			}
			select {
			case in <- q:
			case <-ctx.Done():
				return
			}
		}
	}()
	return in
}

func (s *server) StreamAggregatedResources(g discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	if s.delta {
		return status.Error(codes.Unimplemented, "delta only")
	}
	in, sent, n := requests(g.Context(), g.Recv), map[string]string{}, 0
	send := func(url string) error {
		list, silent := s.list(url)
		text := fmt.Sprint(list)
		if was, ok := sent[url]; ok && was == text || silent {
			return nil
		}
		sent[url] = text
		n++
		return g.Send(&discoveryv3.DiscoveryResponse{TypeUrl: url, VersionInfo: fmt.Sprint("v", n), Nonce: fmt.Sprint(n), Resources: list})
	}
	_, changed := s.note(g.Context(), "")
	for {
		select {
		case q, ok := <-in:
			if !ok {
				return nil
			}
			line := fmt.Sprintf("%s version=%q", q.TypeUrl, q.VersionInfo)
			if q.ErrorDetail != nil {
				line += " refused " + q.ErrorDetail.Message
			}
			if q.Node != nil {
				line += " " + q.Node.Metadata.Fields["GENERATOR"].GetStringValue() + " " + q.Node.Metadata.Fields["CLUSTER_ID"].GetStringValue()
			}
			if code, _ := s.note(g.Context(), line); code != codes.OK {
				return status.Error(code, "by the test")
			}
			if err := send(q.TypeUrl); err != nil {
				return err
			}
		case <-changed:
			_, changed = s.note(g.Context(), "") // before it sends, so that no edit is missed
			for url := range sent {
				if err := send(url); err != nil {
					return err
				}
			}
		}
	}
}

func (s *server) DeltaAggregatedResources(g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	in, sent, n := requests(g.Context(), g.Recv), map[string]map[string]string{}, 0
	send := func(url string, first bool) error {
		list, _ := s.list(url)
		n++
		out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url, Nonce: fmt.Sprint(n)}
		here := map[string]bool{}
		for _, one := range list {
			m := &mcpv1.Resource{}
			if err := one.UnmarshalTo(m); err != nil {
				return err
			}
			name, version := m.Metadata.Name, fmt.Sprintf("%x", one.Value)
			if here[name] = true; sent[url][name] != version {
				sent[url][name] = version
				out.Resources = append(out.Resources, &discoveryv3.Resource{Name: name, Version: version, Resource: one})
			}
		}
		for name := range sent[url] {
			if !here[name] {
				delete(sent[url], name)
				out.RemovedResources = append(out.RemovedResources, name)
			}
		}
		if !first && len(out.Resources)+len(out.RemovedResources) == 0 {
			return nil
		}
		return g.Send(out)
	}
	_, changed := s.note(g.Context(), "")
	for {
		select {
		case q, ok := <-in:
			if !ok {
				return nil
			}
			s.note(g.Context(), fmt.Sprintf("delta %s had=%v refused %q", q.TypeUrl, slices.Sorted(maps.Keys(q.InitialResourceVersions)), q.GetErrorDetail().GetMessage()))
			if sent[q.TypeUrl] == nil {
				sent[q.TypeUrl] = maps.Clone(q.InitialResourceVersions)
				if sent[q.TypeUrl] == nil {
					sent[q.TypeUrl] = map[string]string{}
				}
				if err := send(q.TypeUrl, true); err != nil {
					return err
				}
			}
		case <-changed:
			_, changed = s.note(g.Context(), "") // before it sends, so that no edit is missed
			for url := range sent {
				if err := send(url, false); err != nil {
					return err
				}
			}
		}
	}
}
