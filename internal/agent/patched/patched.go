// Package patched gets from the control plane what EnvoyFilters add to the bootstrap of Envoy, on a stream of its own.
//
// Invariants: Each answer is acknowledged only after it was applied; one that cannot be applied is rejected with the reason, and the patches in force
// stay. The last applied answer is stored, for an agent that starts while the control plane cannot be reached. Answers are applied one after the
// other.
//
// Goroutines: none of its own; a Stream of package upstream has one.
package patched

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/agent/upstream"
)

// bootstrapType is the type of the resource.
const bootstrapType = "type.googleapis.com/envoy.config.bootstrap.v3.Bootstrap"

// roleKey is the key of the metadata that makes the control plane answer; its value is the role of the proxy, because the id of an agent has
// another role.
const roleKey = "BOOTSTRAP_OF"

// Kept stores the last applied answer.
type Kept interface {
	// All returns the resources of a type, and Replace stores them.
	All(typeURL string) []*discoveryv3.Resource
	Replace(typeURL string, resources []*discoveryv3.Resource)
	// Finish notes that all resources of some types are stored.
	Finish(typeURLs ...string)
}

// Follower follows what EnvoyFilters add to the bootstrap.
type Follower struct {
	dial  func() (*grpc.ClientConn, error)
	node  *corev3.Node
	kept  Kept
	apply func(context.Context, *bootstrapv3.Bootstrap) error
	log   *slog.Logger
	known chan struct{} // closed when an answer was applied, or refused

	mu       sync.Mutex // held while something is applied
	answered bool       // there was an answer
}

// New returns the follower of the proxy of a role. dial opens a connection to the control plane, node is Envoy's node, and apply applies what
// EnvoyFilters add now; it gets nil for nothing.
func New(dial func() (*grpc.ClientConn, error), node *corev3.Node, role string, kept Kept, apply func(context.Context, *bootstrapv3.Bootstrap) error, log *slog.Logger) *Follower {
	own := upstream.AgentNode(node)
	if own.GetMetadata().GetFields() == nil {
		own.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
	}
	own.Metadata.Fields[roleKey] = structpb.NewStringValue(role)
	return &Follower{dial: dial, node: own, kept: kept, apply: apply, log: log, known: make(chan struct{})}
}

// Known returns a channel that is closed when the first answer was applied or refused.
func (f *Follower) Known() <-chan struct{} { return f.known }

// Restore applies the stored answer, unless there was another one.
func (f *Follower) Restore(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.kept.All(bootstrapType)
	if f.answered || len(list) == 0 {
		return nil
	}
	b, err := decode(list)
	if err != nil {
		return err
	}
	return f.apply(ctx, b)
}

// Run keeps a stream until ctx is cancelled.
func (f *Follower) Run(ctx context.Context) error {
	upstream.Keep(ctx, f.log, "patches of the bootstrap are not followed", f.stream)
	return nil
}

// stream follows one stream until it ends.
func (f *Follower) stream(ctx context.Context) (received bool, err error) {
	stream, err := upstream.OpenStream(ctx, f.dial)
	if err != nil {
		return false, err
	}
	defer stream.Close()
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: f.node, TypeUrl: bootstrapType, ResourceNamesSubscribe: []string{"*"}}); err != nil {
		return false, err
	}
	for {
		select {
		case <-ctx.Done():
			return received, ctx.Err()
		case err := <-stream.Ended:
			return received, err
		case m := <-stream.Responses:
			received = true
			if err := stream.Send(f.take(ctx, m)); err != nil {
				return received, err
			}
		}
	}
}

// take applies a response, and returns the request that answers it. A response has all there is: one resource, or none.
func (f *Follower) take(ctx context.Context, m *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryRequest {
	q := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()}
	if m.GetTypeUrl() != bootstrapType {
		return q
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := decode(m.GetResources())
	if err == nil {
		err = f.apply(ctx, b)
	}
	if ctx.Err() != nil {
		return q
	}
	if err != nil {
		f.log.Error("what EnvoyFilters add to the bootstrap is refused; Envoy does without", "error", err)
		q.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
	} else {
		f.kept.Replace(bootstrapType, m.GetResources())
		f.kept.Finish(bootstrapType)
	}
	if !f.answered {
		f.answered = true
		close(f.known)
	}
	return q
}

// errSeveral means that the control plane is another one.
var errSeveral = errors.New("the control plane sends several bootstraps")

// decode returns the message of the only resource; nil if there is none.
func decode(list []*discoveryv3.Resource) (*bootstrapv3.Bootstrap, error) {
	switch len(list) {
	case 0:
		return nil, nil //nolint:nilnil // nothing is added
	case 1:
	default:
		return nil, errSeveral
	}
	b := &bootstrapv3.Bootstrap{}
	if err := list[0].GetResource().UnmarshalTo(b); err != nil {
		return nil, fmt.Errorf("decode the patches of the bootstrap: %w", err)
	}
	return b, nil
}
