package main

import (
	"context"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// order is the order in which a client asks for the types, as Envoy does: each when the one before is complete.
var order = [...]resource.Type{resource.Cluster, resource.Endpoint, resource.Listener, resource.Route}

// types is the number of types in the tables of clients.
const types = resource.VirtualHost + 1

// script is the data that the clients of one workload of a namespace share. One of these clients decodes its answers; the
// others take its subscriptions over, as finished bytes, and know how many resources to wait for.
type script struct {
	namespace int
	workload  int // its number in the namespace
	count     [types]int
	// requests are first requests without a node: the subscription. reconnects name the versions a client has.
	requests   [2][types][]byte
	reconnects [types][]byte
	// acks are acknowledgements without nonce and version.
	acks [2][types][]byte
}

// node is the node of the i-th client, one of a workload of a namespace.
func node(ns, workload, i int) *corev3.Node {
	name := namespace(ns)
	metadata, err := structpb.NewStruct(map[string]any{
		"NAMESPACE": name, "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.31.0",
		"LABELS": map[string]any{"app": app(workload), "version": "v1"},
	})
	if err != nil {
		panic(err) // the fields above are constants
	}
	return &corev3.Node{
		Id:       fmt.Sprintf("sidecar~192.168.%d.%d~client-%d.%s~%s.svc.cluster.local", i>>8, i&255, i, name, name),
		Cluster:  "client." + name,
		Metadata: metadata,
	}
}

// nodeField is the node as a field of the first request. With split it says that it is an Envoy that gets virtual hosts as resources of their own.
func nodeField(v variant, split bool, ns, workload, i int) []byte {
	field := protowire.Number(1)
	if v == sotw {
		field = 2
	}
	n := node(ns, workload, i)
	if split {
		n.UserAgentName = "envoy"
		n.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40}}}
	}
	b, err := proto.Marshal(n)
	if err != nil {
		panic(err) // made of valid strings
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), b)
}

// learnAll are the scripts of count namespaces from one on. If there are not so many namespaces, the others are of their second workloads, and so on.
func learnAll(ctx context.Context, conn *grpc.ClientConn, from, count int) ([]*script, error) {
	var list []*script
	for n := from; n < from+count; n++ {
		c, err := learn(ctx, conn, n%namespaces, n/namespaces, n)
		if err != nil {
			return nil, err
		}
		if c.count[resource.Cluster] == 0 || c.count[resource.Endpoint] == 0 || c.count[resource.Route] == 0 {
			return nil, fmt.Errorf("%s is sent clusters, assignments, listeners, routes: %v; a benchmark of nothing is none", namespace(n), c.count)
		}
		list = append(list, c)
	}
	return list, nil
}

// learn finds out the subscriptions of the clients of a workload, with one State-of-the-World stream that
// decodes its answers: there, one response holds all clusters, and one all listeners.
func learn(ctx context.Context, conn *grpc.ClientConn, ns, workload, id int) (*script, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	var names [types][]string
	for _, t := range []resource.Type{resource.Cluster, resource.Listener} {
		req := &discoveryv3.DiscoveryRequest{TypeUrl: t.URL()}
		if t == resource.Cluster {
			req.Node = node(ns, workload, id)
		}
		if err := stream.Send(req); err != nil {
			return nil, err
		}
		response, err := stream.Recv()
		if err != nil {
			return nil, fmt.Errorf("learning the subscriptions of %s: %w", namespace(ns), err)
		}
		ack := &discoveryv3.DiscoveryRequest{TypeUrl: t.URL(), VersionInfo: response.GetVersionInfo(), ResponseNonce: response.GetNonce()}
		if err := stream.Send(ack); err != nil {
			return nil, err
		}
		for _, packed := range response.GetResources() {
			r, err := parse(t, packed)
			if err != nil {
				return nil, err
			}
			names[t] = append(names[t], r.Name())
			if name, ok := r.EDS(); ok {
				names[resource.Endpoint] = append(names[resource.Endpoint], name)
			}
			names[resource.Route] = union(names[resource.Route], r.Refs())
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	return newScript(ns, workload, names), nil
}

// parse decodes a resource as far as needed to find the resources that it refers to.
func parse(t resource.Type, packed *anypb.Any) (*resource.Resource, error) {
	msg, err := packed.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("a resource of %s: %w", t, err)
	}
	named, ok := msg.(interface{ GetName() string })
	if !ok {
		return nil, fmt.Errorf("a %T among the resources of %s", msg, t)
	}
	return resource.New(t, named.GetName(), msg), nil
}

// union adds the names that are not in the list yet. It is for short lists.
func union(list, more []string) []string {
	for _, m := range more {
		found := false
		for _, have := range list {
			found = found || have == m
		}
		if !found {
			list = append(list, m)
		}
	}
	return list
}

func newScript(ns, workload int, names [types][]string) *script {
	c := &script{namespace: ns, workload: workload}
	for _, t := range order {
		c.count[t] = len(names[t])
		subscribe := names[t]
		if t.Wildcard() {
			subscribe = nil
		}
		c.requests[delta][t] = encode(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL(), ResourceNamesSubscribe: subscribe})
		c.requests[sotw][t] = encode(&discoveryv3.DiscoveryRequest{TypeUrl: t.URL(), ResourceNames: subscribe})
		c.acks[delta][t] = encode(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL()})
		c.acks[sotw][t] = c.requests[sotw][t] // its acknowledgements repeat the names
	}
	// An Envoy asks for virtual hosts once and names none.
	hosts := encode(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.VirtualHost.URL()})
	c.requests[delta][resource.VirtualHost], c.acks[delta][resource.VirtualHost] = hosts, hosts
	return c
}

// remember sets the versions, by type and name, that a client reports when it connects again.
func (c *script) remember(versions *[types]map[string]string) {
	for _, t := range append(order[:], resource.VirtualHost) {
		req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL(), InitialResourceVersions: versions[t]}
		if !t.Wildcard() && t != resource.VirtualHost {
			for name := range versions[t] {
				req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, name)
			}
		}
		c.reconnects[t] = encode(req)
	}
}

func encode(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("a request cannot be encoded: %v", err)) // names come from responses that could be decoded
	}
	return b
}

// follow is the request of a delta client after clusters came and others went; either list may be empty.
func follow(came, went []string) []byte {
	return encode(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: resource.Endpoint.URL(), ResourceNamesSubscribe: came, ResourceNamesUnsubscribe: went,
	})
}
