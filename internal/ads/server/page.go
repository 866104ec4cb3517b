package server

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/protocol/response"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// pageURL is the type of requests for debug pages, which is Istio's. The name of the resource is the page, such as syncz?proxyID=web-1.shop,
// and its body is the value of the resource. A page may be a part of the type instead: istio.io/debug/syncz.
const pageURL = "istio.io/debug"

// Page is a question for a debug page.
type Page struct {
	// Path is the page with its parameters, without /debug/, such as syncz?proxyID=web-1.shop.
	Path string
	// Caller is the authenticated client; zero if it is not known. Address is its host and port.
	Caller  identity.Caller
	Address string
}

// asksForPage reports whether a request is for a debug page. It is only if it is the first one of its stream, or follows one that was.
func (s *Stream) asksForPage(q *protocol.Request, first bool) bool {
	if s.server.options.Pages == nil || !first && !s.pages.Load() {
		return false
	}
	rest, ok := bytes.CutPrefix(q.URL, []byte(pageURL))
	return ok && (len(rest) == 0 || rest[0] == '/')
}

// answerPage answers a request for a debug page, on the handler goroutine. Such a stream is for pages only: it has no proxy, and nothing
// else writes to it.
func (s *Stream) answerPage(q *protocol.Request) error {
	s.pages.Store(true)
	if s.acknowledgesPage(q) {
		return nil
	}
	path, err := pathOf(q)
	if err != nil {
		return err
	}
	ctx := s.grpc.Context()
	page := Page{Path: path, Caller: s.caller}
	if p, ok := peer.FromContext(ctx); ok {
		page.Address = p.Addr.String()
	}
	body, err := s.server.options.Pages(ctx, page)
	if err != nil {
		return err
	}
	return s.sendPage(string(q.URL), path, body)
}

// pageNonce begins the nonces of pages.
const pageNonce = "page-"

// acknowledgesPage reports whether a request has the nonce of a page that was sent on the stream. Any other nonce means nothing: istioctl puts the
// time into the first request of a stream.
func (s *Stream) acknowledgesPage(q *protocol.Request) bool {
	number, ok := strings.CutPrefix(string(q.Nonce), pageNonce)
	if !ok {
		return false
	}
	n, err := strconv.ParseUint(number, 10, 64)
	return err == nil && n > 0 && n <= s.pagesSent
}

// pathOf returns the page that a request names.
func pathOf(q *protocol.Request) (string, error) {
	if path := strings.Trim(strings.TrimPrefix(string(q.URL), pageURL), "/"); path != "" {
		return path, nil
	}
	var path string
	for name := range q.Subscribed() {
		path = strings.TrimPrefix(strings.TrimPrefix(string(name), "/"), "debug/")
	}
	if path == "" || q.Subscribes != 1 {
		return "", status.Errorf(codes.InvalidArgument, "a request of the type %s names one page, such as syncz; this one has %d names", pageURL, q.Subscribes)
	}
	return path, nil
}

// sendPage sends a page. gRPC accepts a first message of any size, so the sweep of the server ends the stream of a client that does not read.
func (s *Stream) sendPage(url, name string, body []byte) error {
	content := &anypb.Any{TypeUrl: url, Value: body}
	var answer proto.Message = &discoveryv3.DiscoveryResponse{TypeUrl: url, Resources: []*anypb.Any{content}}
	if s.variant == request.Delta {
		answer = &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url, Resources: []*discoveryv3.Resource{{Name: name, Resource: content}}}
	}
	text, err := proto.Marshal(answer)
	if err != nil {
		return err
	}
	s.pagesSent++
	nonce := response.NonceField(pageNonce + strconv.FormatUint(s.pagesSent, 10))
	s.lastProgress.Store(time.Now().UnixNano())
	s.unwritten.Add(1)
	return s.grpc.SendMsg(&encoded{mem.BufferSlice{mem.SliceBuffer(text), notifyingBuffer(nonce, s.written)}})
}

// PagesFunc returns the body of a debug page. Its error has a gRPC status.
type PagesFunc func(ctx context.Context, page Page) ([]byte, error)

// clip limits the length of what a client sent, for an error.
func clip(b []byte) string { return string(b[:min(len(b), 128)]) }
