package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source/registries"
)

// session is one stream.
type session struct {
	*reader
	to    registries.Listener
	pause *registries.Backoff
	// answered are the types to which there was a response.
	answered map[string]bool
	// listed is true once everything has been answered that will be.
	listed bool

	send func(*request) error
	recv func() (*response, error)
}

// request is a request of either variant.
type request struct {
	sub   *subscription
	first bool // of its type
	nonce string
	wrong string // why the response is refused; empty if it is accepted
}

// response is a response of either variant.
type response struct {
	url, version, nonce string
	resources           []received
	removed             []string
}

// open opens the stream, and subscribes to all kinds.
func (s *session) open(ctx context.Context, conn *grpc.ClientConn) error {
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	open := s.openWorld
	if s.delta {
		open = s.openDelta
	}
	if err := open(ctx, client); err != nil {
		return err
	}
	for _, sub := range s.subscriptions {
		if err := s.send(&request{sub: sub, first: true}); err != nil && !errors.Is(err, io.EOF) { // the receiver knows why it ended
			return err
		}
	}
	return nil
}

func (s *session) openWorld(ctx context.Context, client discoveryv3.AggregatedDiscoveryServiceClient) error {
	stream, err := client.StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	node := s.node()
	s.send = func(q *request) error {
		out := &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: q.sub.url, VersionInfo: q.sub.version, ResponseNonce: q.nonce, ErrorDetail: detail(q.wrong)}
		node = nil
		return stream.Send(out)
	}
	s.recv = func() (*response, error) {
		in, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		out := &response{url: in.GetTypeUrl(), version: in.GetVersionInfo(), nonce: in.GetNonce()}
		for _, one := range in.GetResources() {
			out.resources = append(out.resources, received{any: one})
		}
		return out, nil
	}
	return nil
}

func (s *session) openDelta(ctx context.Context, client discoveryv3.AggregatedDiscoveryServiceClient) error {
	stream, err := client.DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	node := s.node()
	s.send = func(q *request) error {
		out := &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: q.sub.url, ResponseNonce: q.nonce, ErrorDetail: detail(q.wrong)}
		if q.first {
			out.InitialResourceVersions = q.sub.names
		}
		node = nil
		return stream.Send(out)
	}
	s.recv = func() (*response, error) {
		in, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		out := &response{url: in.GetTypeUrl(), nonce: in.GetNonce(), removed: in.GetRemovedResources()}
		for _, one := range in.GetResources() {
			out.resources = append(out.resources, received{name: one.GetName(), version: one.GetVersion(), any: one.GetResource()})
		}
		return out, nil
	}
	return nil
}

func detail(wrong string) *rpcstatus.Status {
	if wrong == "" {
		return nil
	}
	return &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: wrong}
}

// run handles responses until the stream ends.
func (s *session) run(ctx context.Context, end func()) error {
	in, failed := make(chan *response), make(chan error, 1)
	go func() {
		for {
			one, err := s.recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case in <- one:
			case <-ctx.Done():
				failed <- ctx.Err()
				return
			}
		}
	}()
	stop := func(err error) error {
		end()
		if reason := <-failed; err == nil {
			err = reason
		}
		if errors.Is(err, io.EOF) {
			err = errEnded
		}
		return err
	}
	silence := time.NewTimer(quiet)
	defer silence.Stop()
	for {
		select {
		case err := <-failed:
			failed <- err
			return stop(nil)
		case <-silence.C:
			s.settle(false)
		case one := <-in:
			if err := s.handle(one); err != nil && !errors.Is(err, io.EOF) {
				return stop(err)
			}
			s.settle(true)
			silence.Reset(quiet)
		}
	}
}

// settle reports that the server is listed, once all kinds are answered, or some are and the server is silent. A server that has been listed before
// may have nothing to say.
func (s *session) settle(more bool) {
	all := len(s.answered) == len(s.subscriptions)
	if s.listed || !all && (more || len(s.answered) == 0 && !s.known()) {
		return
	}
	s.listed = true
	s.pause.Reset()
	s.to.Listed()
}

// known reports whether an earlier stream has had an answer.
func (s *session) known() bool {
	for _, sub := range s.subscriptions {
		if sub.version != "" || len(sub.names) > 0 {
			return true
		}
	}
	return false
}

// handle applies a response, and acknowledges or refuses it.
func (s *session) handle(in *response) error {
	var sub *subscription
	for _, one := range s.subscriptions {
		if one.url == in.url {
			sub = one
		}
	}
	if sub == nil {
		s.log.Warn("the server sends a type that was not asked for", "type", clip(in.url))
		return nil
	}
	change := registries.ObjectChange{Kind: sub.kind.Name, Whole: !s.delta, First: !s.answered[in.url] || s.delta && !s.listed}
	s.answered[in.url] = true
	var wrong []string
	if change.Whole {
		clear(sub.unread)
	}
	for _, one := range in.resources {
		is := s.decode(sub.kind, one)
		delete(sub.unread, one.name)
		switch {
		case is.own: // it comes from here
		case is.remark.Reason != "":
			sub.unread[cmp.Or(one.name, is.remark.Place)] = is.remark
			change.Whole = change.Whole && is.named
		default:
			change.Is = append(change.Is, is.Object)
		}
		reason := is.wrong()
		if reason != "" {
			wrong = append(wrong, reason)
		}
		if one.name != "" {
			if sub.names[one.name] = one.version; reason != "" {
				sub.names[one.name] = "" // a server that is asked again sends it again
			}
		}
	}
	for _, name := range in.removed {
		delete(sub.names, name)
		delete(sub.unread, name)
		if k, ok := keyOf(sub.kind, name); ok {
			change.Gone = append(change.Gone, k)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sub.unread)) {
		change.Unread = append(change.Unread, sub.unread[name])
	}
	s.to.Objects(change)
	if len(wrong) == 0 {
		sub.version = in.version
	}
	return s.send(&request{sub: sub, nonce: in.nonce, wrong: summary(wrong)})
}

// mostNamed is how many refused resources a refusal names.
const mostNamed = 5

func summary(wrong []string) string {
	n := len(wrong)
	if n > mostNamed {
		wrong = append(wrong[:mostNamed:mostNamed], fmt.Sprintf("and %d more", n-mostNamed))
	}
	return strings.Join(wrong, "; ")
}

// maxQuote is how much of what a server sends is quoted.
const maxQuote = 200

func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxQuote)], "?")
}

// keyOf returns the key of a resource NAMESPACE/NAME.
func keyOf(kind api.Kind, name string) (api.Key, bool) {
	namespace, name, ok := strings.Cut(name, "/")
	return api.Key{Kind: kind.Name, Namespace: namespace, Name: name}, ok && api.CheckNames(namespace, name) == ""
}
