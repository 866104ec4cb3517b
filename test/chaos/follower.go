package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/test/testbed"
)

// follower holds what a sidecar would: it accepts everything at once, comes back when the control plane does, and says then what it
// has. Hundreds of rounds with followers take as long as one with Envoys, which drain what they lose.
type follower struct {
	node   *corev3.Node
	target string

	mu  sync.Mutex
	has map[string]map[string]string // versions by name, by type; no entry for a type that was never answered
}

// followed are the types of which a follower has everything.
var followed = []string{"type.googleapis.com/envoy.config.cluster.v3.Cluster", "type.googleapis.com/envoy.config.listener.v3.Listener"}

func newFollower(target string, n testbed.Node) (*follower, error) {
	metadata, err := structpb.NewStruct(map[string]any{"NAMESPACE": n.Namespace, "INTERCEPTION_MODE": "NONE", "INSTANCE_IPS": n.IP})
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("sidecar~%s~%s.%s~%s.svc.cluster.local", n.IP, n.Name, n.Namespace, n.Namespace)
	f := &follower{node: &corev3.Node{Id: id, Metadata: metadata}, target: target, has: map[string]map[string]string{}}
	return f, nil
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for ctx.Err() == nil {
		_ = f.stream(ctx) // the control plane is killed again and again
		select {
		case <-retry.C:
		case <-ctx.Done():
		}
	}
}

func (f *follower) stream(ctx context.Context) error {
	conn, err := grpc.NewClient(f.target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	node := f.node
	for _, typ := range followed {
		q := &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typ, InitialResourceVersions: f.versions(typ)}
		if err := s.Send(q); err != nil {
			return err
		}
		node = nil
	}
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		f.take(m)
		if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()}); err != nil {
			return err
		}
	}
}

func (f *follower) take(m *discoveryv3.DeltaDiscoveryResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.has[m.GetTypeUrl()] == nil {
		f.has[m.GetTypeUrl()] = map[string]string{}
	}
	for _, r := range m.GetResources() {
		f.has[m.GetTypeUrl()][r.GetName()] = r.GetVersion()
	}
	for _, name := range m.GetRemovedResources() {
		delete(f.has[m.GetTypeUrl()], name)
	}
}

func (f *follower) versions(typ string) map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.has[typ])
}

// differs says in what a follower differs from another; nothing if they have the same and the other has something.
func (f *follower) differs(from *follower) string {
	var lines []string
	for _, typ := range followed {
		has, want := f.versions(typ), from.versions(typ)
		if want == nil {
			lines = append(lines, typ+": nothing after a cold start yet")
		}
		for name, version := range has {
			if want[name] != version {
				lines = append(lines, fmt.Sprintf("%s %s: it has %s, after a cold start %q", typ, name, version, want[name]))
			}
		}
		for name := range want {
			if has[name] == "" {
				lines = append(lines, fmt.Sprintf("%s %s: only after a cold start", typ, name))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
