// Package mcp reads configuration from servers that speak MCP over xDS: other control planes, and registries that imitate one.
//
// There is one aggregated stream to a server, with a subscription for each kind of configuration. It owns the client's side of the protocol
// (stream.go), and how a resource becomes an object (decode.go): by the same strict decoder as documents of files and objects of a cluster. What the
// control plane believes of a server is decided in package registries.
//
// Invariants:
//   - A resource that cannot be used costs itself. The rest of its response applies, and the server hears which resource was refused, and why.
//   - Nothing that arrives makes the reader fail: a stream that breaks is opened again, with the known versions.
//
// Goroutines: Run works in the caller's goroutine. Each stream has one more, which receives and is waited for.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source/registries"
)

const (
	// quiet is how long a server may be silent after an answer, before the kinds without an answer count as not served.
	quiet = time.Second
	// maxMessage is the largest size of a response in bytes.
	maxMessage = 256 << 20
	// alive is the time without data after which the server is asked for a sign of life, and answer the time for that.
	alive, answer = 30 * time.Second, 10 * time.Second
)

// Options are what all readers have in common.
type Options struct {
	// ClusterID names the control plane to servers, so that they do not return its own objects to it.
	ClusterID string
	// Namespace is the namespace of the control plane.
	Namespace string
}

// Factory returns the factory of readers.
func Factory(o Options) registries.Factory {
	return func(e registries.Entry, a registries.Access, log *slog.Logger) (registries.Reader, error) {
		r := &reader{Options: o, entry: e, access: a, log: log, place: "registry " + e.Name}
		for _, k := range api.Kinds() {
			if strings.HasSuffix(k.Group(), ".istio.io") {
				r.subscriptions = append(r.subscriptions, &subscription{kind: k, url: k.Group() + "/" + k.Versions()[0] + "/" + k.Name, names: map[string]string{}, unread: map[string]registries.Remark{}})
			}
		}
		return r, nil
	}
}

// reader reads one server, or the next one of its addresses if one fails.
type reader struct {
	Options
	entry         registries.Entry
	access        registries.Access
	log           *slog.Logger
	place         string
	subscriptions []*subscription
	delta         bool // the server refuses State-of-the-World
}

// subscription is the knowledge of the objects of a kind. It outlives streams.
type subscription struct {
	kind api.Kind
	url  string
	// version is the version of the last accepted State-of-the-World response.
	version string
	// names are the versions of the resources that a delta server has sent. They are empty for resources that were refused.
	names map[string]string
	// unread are the resources that are no objects, by name.
	unread map[string]registries.Remark
}

// Run implements registries.Reader.
func (r *reader) Run(ctx context.Context, to registries.Listener) {
	pause := registries.NewBackoff()
	for attempt := 0; ; attempt++ {
		address := r.entry.Addresses[attempt%len(r.entry.Addresses)]
		err := r.connect(ctx, address, to, pause)
		if ctx.Err() != nil {
			return
		}
		switch code := status.Code(err); code {
		case codes.Unimplemented:
			r.delta = !r.delta
			if attempt == 0 {
				continue
			}
			to.Lost(fmt.Errorf("%s: the server serves neither State-of-the-World nor delta ADS: %s", address, status.Convert(err).Message()))
		case codes.Unauthenticated, codes.PermissionDenied:
			to.Refused(fmt.Errorf("%s: the server refuses the control plane: %s", address, status.Convert(err).Message()))
		default:
			to.Lost(fmt.Errorf("%s: %s", address, status.Convert(err).Message()))
		}
		if !pause.Wait(ctx) {
			return
		}
	}
}

// connect reads a server until that fails. The error is never nil.
func (r *reader) connect(ctx context.Context, address string, to registries.Listener, pause *registries.Backoff) error {
	secure := insecure.NewCredentials()
	if r.access.TLS != nil {
		secure = credentials.NewTLS(r.access.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: alive, Timeout: answer}), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	}
	if t := r.access.Auth[registries.MCPToken]; t != "" {
		options = append(options, grpc.WithPerRPCCredentials(token(t)))
	}
	conn, err := grpc.NewClient("passthrough:///"+address, options...)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is buffered
	ctx, end := context.WithCancel(ctx)
	defer end()
	s := &session{reader: r, to: to, pause: pause, answered: map[string]bool{}}
	if err := s.open(ctx, conn); err != nil {
		return err
	}
	return s.run(ctx, end)
}

// node describes the control plane to a server.
func (r *reader) node() *corev3.Node {
	text := structpb.NewStringValue
	namespace := r.Namespace
	return &corev3.Node{
		Id: "sidecar~127.0.0.1~pilot." + namespace + "~" + namespace + ".svc.cluster.local",
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"GENERATOR": text("api"), "CLUSTER_ID": text(r.ClusterID), "NAMESPACE": text(namespace),
		}},
	}
}

// token is a bearer token. It goes over connections without TLS only to servers on this machine.
type token string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (token) RequireTransportSecurity() bool { return false }

// String hides the token.
func (token) String() string { return "a token" }

// GoString hides the token.
func (token) GoString() string { return "a token" }

// errEnded is the end of a stream that the server closed.
var errEnded = errors.New("the server closed the stream")
