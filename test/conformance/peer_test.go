package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// peer is a client of a scene. Its methods fail the test.
type peer struct {
	*client.Client
	s    *scene
	left bool
}

// option changes how a peer is.
type option func(*client.Options)

// follows makes a peer ask for what its resources refer to, as Envoy does.
func follows(o *client.Options) { o.Follow = true }

// answers makes a peer answer as a policy says.
func answers(p func(*client.Response) client.Answer) option {
	return func(o *client.Options) { o.Policy = p }
}

// as gives a peer another node.
func as(n *corev3.Node) option { return func(o *client.Options) { o.Node = n } }

// speaks gives a peer another variant than the test's.
func speaks(v client.Variant) option { return func(o *client.Options) { o.Variant = v } }

// in puts a peer into another namespace.
func in(namespace string) option { return as(node("client", namespace)) }

// everyNode makes a peer say with every request who it is.
func everyNode(o *client.Options) { o.EveryNode = true }

// deaf makes a peer that never reads.
func deaf(o *client.Options) { o.Deaf = true }

// node is who a sidecar says it is.
func node(name, namespace string) *corev3.Node {
	text := structpb.NewStringValue
	return &corev3.Node{
		Id:      fmt.Sprintf("sidecar~10.0.0.1~%s.%s~%s.svc.cluster.local", name, namespace, namespace),
		Cluster: name + "." + namespace,
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"NAME": text(name), "NAMESPACE": text(namespace), "CLUSTER_ID": text("Kubernetes"), "MESH_ID": text("cluster.local"),
			"ISTIO_VERSION": text("1.32.0"), "INSTANCE_IPS": text("10.0.0.1"),
			"LABELS": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"app": text(name)}}),
		}},
		UserAgentName: "envoy",
	}
}

// open opens a stream without any request yet.
func (s *scene) open(opts ...option) *peer {
	s.Helper()
	p, err := s.tryOpen(opts...)
	s.must(err)
	return p
}

func (s *scene) tryOpen(opts ...option) (*peer, error) {
	o := client.Options{Address: s.server.GRPC, Variant: s.variant, Node: node("client", s.ns), Checker: s.server.checker}
	for _, opt := range opts {
		opt(&o)
	}
	c, err := client.Open(context.Background(), o)
	if err != nil {
		return nil, err
	}
	p := &peer{Client: c, s: s}
	s.peers = append(s.peers, p)
	return p, nil
}

// connect opens a stream as Envoy would and waits until it has everything.
func (s *scene) connect(opts ...option) *peer {
	s.Helper()
	p := s.open(append([]option{follows}, opts...)...)
	p.subscribe(client.CDS)
	p.settleClusters()
	p.subscribe(client.LDS)
	p.await("everything its resources refer to", func() bool { return len(p.Held(client.LDS)) > 0 && len(p.Loose()) == 0 })
	return p
}

// settleClusters waits until the peer has clusters and their assignments.
func (p *peer) settleClusters() {
	p.s.Helper()
	p.await("clusters and their assignments", func() bool { return len(p.Held(client.CDS)) > 0 && len(p.Warming()) == 0 })
}

// all opens a stream that asks for the four types at once, for a and b by name.
func (s *scene) all(opts ...option) *peer {
	s.Helper()
	p := s.open(opts...)
	p.askAll()
	p.awaitBase()
	return p
}

func (p *peer) askAll() {
	p.s.Helper()
	p.subscribe(client.CDS)
	p.subscribe(client.EDS, p.s.assignments()...)
	p.subscribe(client.LDS)
	p.subscribe(client.RDS, routeHTTP, fenceRoute)
}

// assignments names the assignments of the scene's services of port 80, and of the fence.
func (s *scene) assignments() []string {
	return []string{s.cluster("a"), s.cluster("b"), s.cluster("w"), s.fenceCluster()}
}

// awaitBase waits until the peer has what the scene began with, as far as it asked for it.
func (p *peer) awaitBase() {
	p.s.Helper()
	s := p.s
	has := func(t client.Type, names ...string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return p.Covers(t, n) && p.Get(t, n) == nil })
	}
	p.await("the services of the scene", func() bool {
		for _, t := range s.visible(p) {
			if !s.fenced(p, t) {
				return false
			}
		}
		return has(client.CDS, s.assignments()...) && has(client.EDS, s.assignments()...) && has(client.LDS, listenerT) && has(client.RDS, routeHTTP)
	})
}

// leave drops the stream.
func (p *peer) leave() {
	if !p.left {
		p.left = true
		p.Close()
	}
}

func (p *peer) subscribe(t client.Type, names ...string) {
	p.s.Helper()
	p.s.must(p.Subscribe(t, names...))
}

func (p *peer) unsubscribe(t client.Type, names ...string) {
	p.s.Helper()
	p.s.must(p.Unsubscribe(t, names...))
}

func (p *peer) send(r client.Request) {
	p.s.Helper()
	p.s.must(p.Send(r))
}

// await processes responses until the condition holds.
func (p *peer) await(what string, cond func() bool) {
	p.s.Helper()
	p.awaitFor(patience, what, cond)
}

func (p *peer) awaitFor(limit time.Duration, what string, cond func() bool) {
	p.s.Helper()
	begin := time.Now()
	ctx, cancel := within(limit)
	defer cancel()
	err := p.Await(ctx, cond)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		p.s.Fatalf("waited %s in vain for %s", time.Since(begin).Round(time.Millisecond), what)
	case err != nil:
		p.s.Fatalf("waiting for %s: %v", what, err)
	}
}

// has waits until the peer has resources of a type.
func (p *peer) has(t client.Type, names ...string) {
	p.s.Helper()
	for _, n := range names {
		p.await(fmt.Sprintf("%s %q to come", t, n), func() bool { return p.Get(t, n) != nil })
	}
}

// awaitGone waits until the peer has the named resources of a type no longer.
func (p *peer) awaitGone(t client.Type, names ...string) {
	p.s.Helper()
	for _, n := range names {
		p.await(fmt.Sprintf("%s %q to go", t, n), func() bool { return p.Get(t, n) == nil })
	}
}

// next waits for the next response of a type.
func (p *peer) next(t client.Type) *client.Response {
	p.s.Helper()
	var r *client.Response
	mark := len(p.Log)
	p.await(fmt.Sprintf("a %s response", t), func() bool {
		for _, one := range p.Log[mark:] {
			if one.Known && one.Type == t {
				r = one
				return true
			}
		}
		return false
	})
	return r
}

// nextWith waits for a response from a place in the log on that holds or removes a name.
func (p *peer) nextWith(mark int, t client.Type, name string) *client.Response {
	p.s.Helper()
	var r *client.Response
	p.await(fmt.Sprintf("a %s response about %q", t, name), func() bool {
		r = p.find(mark, t, name)
		return r != nil
	})
	return r
}

// find is the first response from a place in the log on that holds or removes a name, nil if there is none.
func (p *peer) find(mark int, t client.Type, name string) *client.Response {
	for _, one := range p.Log[mark:] {
		if one.Known && one.Type == t && (one.Get(name) != nil || slices.Contains(one.Removed, name)) {
			return one
		}
	}
	return nil
}

// last is the last response of a type.
func (p *peer) last(t client.Type) *client.Response {
	p.s.Helper()
	for _, r := range slices.Backward(p.Log) {
		if r.Known && r.Type == t {
			return r
		}
	}
	p.s.Fatalf("there was no %s response", t)
	return nil
}

// addresses are the addresses of an assignment's endpoints, nil if the peer does not have it, empty if it has none.
func (p *peer) addresses(cluster string) []string {
	r := p.Get(client.EDS, cluster)
	if r == nil {
		return nil
	}
	return addresses(r)
}

func addresses(r *client.Resource) []string {
	list := []string{}
	m, _ := r.Message.(*endpointv3.ClusterLoadAssignment)
	for _, l := range m.GetEndpoints() {
		for _, e := range l.LbEndpoints {
			list = append(list, e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
		}
	}
	slices.Sort(list)
	return list
}

// at waits until a service of port 80 has exactly one endpoint, at an address.
func (p *peer) at(name, address string) {
	p.s.Helper()
	p.await(fmt.Sprintf("%s at %s", name, address), func() bool {
		return slices.Equal(p.addresses(p.s.cluster(name)), []string{address})
	})
}

// connections is the limit of connections of a cluster, -1 if the peer does not have it.
func (p *peer) connections(cluster string) int {
	r := p.Get(client.CDS, cluster)
	if r == nil {
		return -1
	}
	return connections(r)
}

func connections(r *client.Resource) int {
	m, _ := r.Message.(*clusterv3.Cluster)
	for _, t := range m.GetCircuitBreakers().GetThresholds() {
		if t.MaxConnections != nil {
			return int(t.MaxConnections.Value)
		}
	}
	return 0
}

// limited waits until a service's cluster has a limit of connections.
func (p *peer) limited(name string, limit int) {
	p.s.Helper()
	p.await(fmt.Sprintf("%s to allow %d connections", name, limit), func() bool { return p.connections(p.s.cluster(name)) == limit })
}

// mentions reports whether a resource the peer has holds a text.
func (p *peer) mentions(t client.Type, name, text string) bool {
	r := p.Get(t, name)
	return r != nil && bytes.Contains(r.Body, []byte(text))
}

// routed waits until the routes of port 80 mention a tag.
func (p *peer) routed(tag string) {
	p.s.Helper()
	p.await("a route "+tag, func() bool { return p.mentions(client.RDS, routeHTTP, "/"+tag+"/") })
}

// story shows what the peer was sent, the end of it if it is long.
func (p *peer) story() string {
	const keep = 40
	var b strings.Builder
	if n := len(p.Log); n > keep {
		fmt.Fprintf(&b, "... %d responses before\n", n-keep)
	}
	for _, r := range p.Log[max(0, len(p.Log)-keep):] {
		fmt.Fprintln(&b, r)
	}
	return b.String()
}
