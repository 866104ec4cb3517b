// Package tap serves the debug pages of the control plane on this host, for users who can reach the proxy and not the control plane.
// GET /debug/syncz asks the control plane for the page syncz by xDS, as the workload of the proxy, and returns the answer.
//
// Invariants: Nothing is kept. Each request has a connection of its own, so that it neither delays Envoy's stream nor ends with it, and
// shows the newest certificate or token. The control plane decides what the workload may read. Requests are answered only if their Host
// header has an address or localhost, so that no web page in a browser on this host reads them.
//
// Goroutines: gRPC starts and ends them.
package tap

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/run"
)

// pageURL is the xDS type of debug pages, which is Istio's.
const pageURL = "istio.io/debug"

// patience is how long the control plane may take to answer.
const patience = 10 * time.Second

// Handler returns the handler of the pages. dial opens a connection to the control plane, and node is Envoy's node.
func Handler(dial func() (*grpc.ClientConn, error), node *corev3.Node) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/{page...}", func(w http.ResponseWriter, r *http.Request) {
		page := strings.TrimPrefix(r.URL.RequestURI(), "/debug/")
		if r.PathValue("page") == "" {
			page = "list"
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		body, err := ask(ctx, dial, node, page)
		if no, ok := errors.AsType[*answerError](err); ok && (no.code == codes.Unavailable || no.code == codes.Unauthenticated) {
			body, err = ask(ctx, dial, node, page) // another connection shows the token instead of the certificate, or the reverse
		}
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body) // a client that has gone does not need the page
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, fmt.Sprintf("there is no %s %s: GET /debug/list lists the pages of the control plane", r.Method, r.URL.Path), http.StatusNotFound)
	})
	return run.OnlyHosts(nil, "", mux)
}

// answerError is an error of the control plane.
type answerError struct {
	code codes.Code
	text string
}

func (e *answerError) Error() string { return e.text }

// ask asks the control plane for a page.
func ask(ctx context.Context, dial func() (*grpc.ClientConn, error), node *corev3.Node, page string) ([]byte, error) {
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing is buffered
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx, grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return nil, said(err)
	}
	// An error of Send only says that the stream has ended; Recv says why.
	_ = stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: node.GetId()}, TypeUrl: pageURL, ResourceNames: []string{page}})
	answer, err := stream.Recv()
	if err != nil {
		return nil, said(err)
	}
	if answer.GetTypeUrl() != pageURL || len(answer.GetResources()) != 1 {
		return nil, fmt.Errorf("the control plane answered with %d resources of the type %q instead of one page", len(answer.GetResources()), answer.GetTypeUrl())
	}
	return answer.GetResources()[0].GetValue(), nil
}

// said returns the message of the control plane, without the prefix of gRPC.
func said(err error) error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.DeadlineExceeded:
		return &answerError{s.Code(), fmt.Sprintf("the control plane has not answered for %v", patience)}
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied:
		return &answerError{s.Code(), s.Message()}
	}
	return &answerError{s.Code(), "the control plane: " + s.Message()}
}

// statusOf returns the HTTP status for an error.
func statusOf(err error) int {
	no, ok := errors.AsType[*answerError](err)
	if !ok {
		return http.StatusBadGateway
	}
	switch no.code {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.NotFound:
		return http.StatusNotFound
	case codes.PermissionDenied, codes.Unauthenticated:
		return http.StatusForbidden
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}
