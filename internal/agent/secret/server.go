package secret

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Server is the SDS service for a board.
type Server struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	board *Board
}

// NewServer returns the service for a board.
func NewServer(b *Board) *Server { return &Server{board: b} }

// Register adds the service to a gRPC server.
func (s *Server) Register(g *grpc.Server) { secretv3.RegisterSecretDiscoveryServiceServer(g, s) }

// request is the common interface of the requests of both protocol variants.
type request interface{ GetTypeUrl() string }

// check rejects requests for other types. Clients may omit the type, because this service has only one.
func check(r request) error {
	if t := r.GetTypeUrl(); t != "" && t != typeURL {
		return status.Errorf(codes.InvalidArgument, "only %s is served here, not %s", typeURL, t)
	}
	return nil
}

// StreamSecrets implements the State-of-the-World variant.
func (s *Server) StreamSecrets(st secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	c := newCore()
	return serve(st.Context(), s, st.Recv, c, c.state, func(v *View) error {
		for _, r := range c.states(v.Entries) {
			if err := st.Send(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeltaSecrets implements the delta variant.
func (s *Server) DeltaSecrets(st secretv3.SecretDiscoveryService_DeltaSecretsServer) error {
	c := newCore()
	return serve(st.Context(), s, st.Recv, c, c.delta, func(v *View) error {
		if r := c.deltas(v.Entries); r != nil {
			return st.Send(r)
		}
		return nil
	})
}

// serve runs a stream. This goroutine receives; another one processes the requests and sends responses.
func serve[R request](ctx context.Context, s *Server, recv func() (R, error), c *core, take func(R) change, send func(*View) error) error {
	requests := make(chan R)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		sendLoop(ctx, s, requests, take, send)
		s.board.want(nil, slices.Sorted(maps.Keys(c.subscriptions)))
	}()
	defer func() { <-ended }()
	defer close(requests)
	for {
		r, err := recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := check(r); err != nil {
			return err
		}
		select {
		case requests <- r:
		case <-ended:
			return status.Error(codes.Unavailable, "the stream has ended")
		}
	}
}

// sendLoop is the sending half of a stream. It ends when requests is closed or sending fails.
func sendLoop[R request](ctx context.Context, s *Server, requests <-chan R, take func(R) change, send func(*View) error) {
	for {
		view := s.board.View()
		if err := send(view); err != nil {
			return
		}
		select {
		case r, ok := <-requests:
			if !ok {
				return
			}
			s.updateBoard(take(r))
		case <-view.Next:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) updateBoard(ch change) {
	s.board.want(ch.more, ch.less)
	for _, r := range ch.rejected {
		s.board.refuse(r.name, r.version, r.reason)
	}
}

// FetchSecrets answers once, as soon as there is an answer for every requested secret.
func (s *Server) FetchSecrets(ctx context.Context, r *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	if err := check(r); err != nil {
		return nil, err
	}
	names := slices.Compact(slices.Sorted(slices.Values(r.GetResourceNames())))
	if len(names) == 0 {
		return nil, status.Error(codes.InvalidArgument, "the request names no secret")
	}
	s.board.want(names, nil)
	defer s.board.want(nil, names)
	for {
		view := s.board.View()
		entries, lack := []Entry{}, []string{}
		for _, name := range names {
			switch e, known := view.Entries[name]; {
			case !known || e.State == StateWaiting:
			case e.Good():
				entries = append(entries, e)
			default:
				lack = append(lack, e.Name+": "+e.Problem)
			}
		}
		switch {
		case len(lack) > 0:
			return nil, status.Error(codes.NotFound, strings.Join(lack, "; "))
		case len(entries) == len(names):
			resp := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: versions(entries)}
			for _, e := range entries {
				resp.Resources = append(resp.Resources, e.resource)
			}
			return resp, nil
		}
		select {
		case <-view.Next:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}
