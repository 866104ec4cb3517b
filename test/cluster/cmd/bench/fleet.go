package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/test/testbed"
)

const prefix = "type.googleapis.com/envoy.config."

// The types, in the order in which a client asks for them.
var order = [...]string{
	prefix + "cluster.v3.Cluster", prefix + "endpoint.v3.ClusterLoadAssignment", prefix + "listener.v3.Listener", prefix + "route.v3.RouteConfiguration",
}

// fleet is a number of delta streams, spread over the namespaces. They stay when the control plane is restarted: each connects again and states the
// versions that it has.
type fleet struct {
	conns   []*grpc.ClientConn
	streams []*stream
	cancel  context.CancelFunc
	group   sync.WaitGroup
	waits   atomic.Pointer[arrival]
}

// stream is one client. Only its goroutine writes to has and names.
type stream struct {
	fleet    *fleet
	node     *corev3.Node
	has      [len(order)]map[string]string // version by name
	names    [len(order)][]string          // the names that it subscribes to
	settled  atomic.Bool                   // it has everything that it asks for
	received atomic.Int64                  // resources and removals of this and earlier connections
}

// arrival is a resource that is waited for.
type arrival struct {
	name string
	left atomic.Int64
	done chan struct{}
}

// newFleet connects streams and waits until each has everything that it asks for.
func newFleet(ctx context.Context, addr string, n int) (*fleet, error) {
	ctx, cancel := context.WithCancel(ctx)
	f := &fleet{cancel: cancel}
	for range 50 {
		conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
		if err != nil {
			cancel()
			return nil, err
		}
		f.conns = append(f.conns, conn)
	}
	for i := range n {
		s := &stream{fleet: f, node: nodeOf(i)}
		for t := range s.has {
			s.has[t] = map[string]string{}
		}
		f.streams = append(f.streams, s)
		f.group.Go(func() { s.live(ctx, f.conns[i%len(f.conns)]) })
	}
	return f, f.settle(ctx)
}

// nodeOf is a sidecar in one of the namespaces, at an address that no pod has.
func nodeOf(i int) *corev3.Node {
	namespace := namespaceOf(i)
	metadata, _ := structpb.NewStruct(map[string]any{"NAMESPACE": namespace, "ISTIO_VERSION": "1.31.0", "CLUSTER_ID": "Kubernetes"}) // the map is right
	ip := fmt.Sprintf("10.120.%d.%d", i>>8, i&0xff)
	return &corev3.Node{Id: fmt.Sprintf("sidecar~%s~client-%d.%s~%s.svc.cluster.local", ip, i, namespace, namespace), Metadata: metadata}
}

// settle waits until all streams have everything that they ask for.
func (f *fleet) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return testbed.Until(ctx, "the streams to have everything", func(context.Context) error {
		settled := 0
		for _, s := range f.streams {
			if s.settled.Load() {
				settled++
			}
		}
		if settled < len(f.streams) {
			return fmt.Errorf("%d of %d have", settled, len(f.streams))
		}
		return nil
	})
}

func (f *fleet) close() {
	f.cancel()
	f.group.Wait()
	for _, c := range f.conns {
		_ = c.Close()
	}
}

// received counts the resources and removals that all streams were sent.
func (f *fleet) received() (sum int64) {
	for _, s := range f.streams {
		sum += s.received.Load()
	}
	return sum
}

// expect lets the fleet wait for an assignment: the channel is closed when every stream has it.
func (f *fleet) expect(name string) <-chan struct{} {
	a := &arrival{name: name, done: make(chan struct{})}
	a.left.Store(int64(len(f.streams)))
	f.waits.Store(a)
	return a.done
}

// live keeps the stream open until ctx ends.
func (s *stream) live(ctx context.Context, conn *grpc.ClientConn) {
	for ctx.Err() == nil {
		s.settled.Store(false)
		_ = s.open(ctx, conn) // the control plane is restarted: connect again
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (s *stream) open(ctx context.Context, conn *grpc.ClientConn) error {
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	again := len(s.has[0]) > 0
	for t := range order {
		if t > 0 && !again {
			break // it asks when it knows the names
		}
		q := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: order[t], ResourceNamesSubscribe: s.names[t]}
		if t == 0 {
			q.Node = s.node
		}
		if again {
			q.InitialResourceVersions = s.has[t]
		}
		if err := ads.Send(q); err != nil {
			return err
		}
	}
	s.settled.Store(again)
	if !again { // listeners do not follow from anything
		if err := ads.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: order[2]}); err != nil {
			return err
		}
	}
	for {
		m, err := ads.Recv()
		if err != nil {
			return err
		}
		t := s.take(m)
		if err := ads.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce}); err != nil {
			return err
		}
		if more := follows(t, m); !s.settled.Load() && len(more) > 0 {
			s.names[t+1] = append(s.names[t+1], more...)
			if err := ads.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: order[t+1], ResourceNamesSubscribe: more}); err != nil {
				return err
			}
		}
		if s.complete() {
			s.settled.Store(true)
		}
	}
}

// complete reports whether the client has some of each type, and all that it asks for by name.
func (s *stream) complete() bool {
	for t, names := range s.names {
		if len(s.has[t]) == 0 || len(s.has[t]) < len(names) {
			return false
		}
	}
	return true
}

// take notes what a response contains, and returns the number of its type.
func (s *stream) take(m *discoveryv3.DeltaDiscoveryResponse) (t int) {
	for order[t] != m.TypeUrl {
		t++
	}
	s.received.Add(int64(len(m.Resources) + len(m.RemovedResources)))
	for _, r := range m.Resources {
		s.has[t][r.Name] = r.Version
		if a := s.fleet.waits.Load(); a != nil && t == 1 && r.Name == a.name && a.left.Add(-1) == 0 {
			close(a.done)
		}
	}
	for _, name := range m.RemovedResources {
		delete(s.has[t], name)
	}
	return t
}

// follows returns the names that a client asks for of the next type after a response: the assignments of clusters, and the route
// configurations of listeners.
func follows(t int, m *discoveryv3.DeltaDiscoveryResponse) (names []string) {
	for _, r := range m.Resources {
		switch {
		case t == 0 && strings.HasPrefix(r.Name, "outbound|"):
			names = append(names, r.Name)
		case t == 2:
			names = append(names, routesOf(r)...)
		}
	}
	return names
}

// routesOf returns the names of the route configurations of a listener.
func routesOf(r *discoveryv3.Resource) (names []string) {
	l := &listenerv3.Listener{}
	if r.Resource.UnmarshalTo(l) != nil {
		return nil
	}
	for _, chain := range append(l.FilterChains, l.DefaultFilterChain) {
		for _, filter := range chain.GetFilters() {
			h := &hcmv3.HttpConnectionManager{}
			if filter.GetTypedConfig().MessageIs(h) && filter.GetTypedConfig().UnmarshalTo(h) == nil && h.GetRds() != nil {
				names = append(names, h.GetRds().RouteConfigName)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
