package relay

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/internal/agent/lastgood"
	"github.com/pilotmesh/pilot/internal/agent/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for anything.
const patience = 20 * time.Second

const secretURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// place is a relay between an Envoy and a control plane that a test plays.
type place struct {
	*testing.T
	store   *lastgood.Store
	modules *modules
	relay   *Relay
	address string
	envoy   *grpc.ClientConn
	control *grpc.Server
	// The requests that the control plane has received, and its next answers. A control plane has one stream at a time.
	deltas  chan *discoveryv3.DeltaDiscoveryRequest
	wholes  chan *discoveryv3.DiscoveryRequest
	answers chan proto.Message
	// alone is the time without a control plane that the last stream reported.
	alone atomic.Value
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{
		T: t, modules: &modules{}, deltas: make(chan *discoveryv3.DeltaDiscoveryRequest), wholes: make(chan *discoveryv3.DiscoveryRequest), answers: make(chan proto.Message),
		store: lastgood.Open(filepath.Join(t.TempDir(), "f"), "node", slog.New(slog.DiscardHandler)),
	}
	p.serve("127.0.0.1:0")
	p.relay = New(Options{Dialer: &upstream.Dialer{Address: p.address, Plain: true}, Store: p.store, Modules: p.modules, Log: slog.New(slog.DiscardHandler)})
	p.relay.fetchPause = 10 * time.Millisecond
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	p.must(err)
	server := p.relay.Server()
	go func() { _ = server.Serve(l) }() // ends by Stop
	p.envoy, err = grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	p.must(err)
	t.Cleanup(func() {
		p.must(p.envoy.Close())
		server.Stop()
		p.control.Stop()
		if spare := p.relay.spare.Load(); spare != nil {
			p.must(spare.Close())
		}
	})
	return p
}

func (p *place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// serve starts the control plane.
func (p *place) serve(address string) {
	p.Helper()
	l, err := net.Listen("tcp", address)
	p.must(err)
	p.address = l.Addr().String()
	p.control = grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(p.control, p)
	server := p.control
	go func() { _ = server.Serve(l) }() // ends by Stop
}

// DeltaAggregatedResources implements the control plane.
func (p *place) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return serveStream(p, s, p.deltas)
}

// StreamAggregatedResources implements the control plane.
func (p *place) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return serveStream(p, s, p.wholes)
}

func serveStream[Q any, S interface {
	grpc.ServerStream
	Recv() (Q, error)
}](p *place, s S, requests chan Q) error {
	p.alone.Store(strings.Join(metadata.ValueFromIncomingContext(s.Context(), aloneHeader), " "))
	ended := make(chan error, 1)
	go func() {
		for {
			q, err := s.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case requests <- q:
			case <-s.Context().Done():
			}
		}
	}()
	for {
		select {
		case err := <-ended:
			return err
		case m := <-p.answers:
			if err := s.SendMsg(m); err != nil {
				return err
			}
		}
	}
}

// take returns what comes through a channel.
func take[T any](p *place, from <-chan T) (v T) {
	p.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		p.Fatal("nothing comes")
	}
	return v
}

// until waits until a condition holds.
func (p *place) until(what string, holds func() bool) {
	p.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); !holds(); {
		select {
		case <-tick.C:
		case <-late:
			p.Fatalf("waiting for %s", what)
		}
	}
}

// connect opens a stream of Envoy with delta xDS, and connectWhole one with State-of-the-World xDS.
func (p *place) connect() discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	p.Cleanup(cancel)
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(p.envoy).DeltaAggregatedResources(ctx)
	p.must(err)
	return s
}

func (p *place) connectWhole() discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	p.Cleanup(cancel)
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(p.envoy).StreamAggregatedResources(ctx)
	p.must(err)
	return s
}

// clusters are resources from words such as a@1.
func clusters(t *testing.T, words string) (list []*discoveryv3.Resource) {
	t.Helper()
	for _, word := range strings.Fields(words) {
		name, version, _ := strings.Cut(word, "@")
		body, err := anypb.New(&clusterv3.Cluster{Name: name, AltStatName: version})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &discoveryv3.Resource{Name: name, Version: version, Resource: body})
	}
	return list
}

// written are resources as words.
func written(list []*discoveryv3.Resource) string {
	words := make([]string, 0, len(list))
	for _, r := range list {
		words = append(words, r.GetName()+"@"+r.GetVersion())
	}
	return strings.Join(words, " ")
}

// keep puts clusters into the store, and makes it complete.
func (p *place) keep(words string) {
	p.store.Accept(clusterURL, clusters(p.T, words), nil)
	p.store.Finish(keptTypes()...)
}

// kept are the clusters in the store.
func (p *place) kept() string { return written(p.store.All(clusterURL)) }

// asks returns a request in words.
func asks(q *discoveryv3.DeltaDiscoveryRequest) string {
	var has []string
	for name, version := range q.GetInitialResourceVersions() {
		has = append(has, name+"@"+version)
	}
	slices.Sort(has)
	return fmt.Sprintf("subscribe %v unsubscribe %v has %v nonce %q", q.GetResourceNamesSubscribe(), q.GetResourceNamesUnsubscribe(), has, q.GetResponseNonce())
}

// says returns a response in words.
func says(a *discoveryv3.DeltaDiscoveryResponse) string {
	return fmt.Sprintf("%s removed %v", written(a.GetResources()), a.GetRemovedResources())
}

// TestDelta: resources that Envoy acknowledges are kept, refused ones are not, and removed or unsubscribed ones are dropped. Messages of
// other types pass through.
func TestDelta(t *testing.T) {
	p := newPlace(t)
	s := p.connect()
	send := func(q *discoveryv3.DeltaDiscoveryRequest) { p.must(s.Send(q)) }
	pass := func(a *discoveryv3.DeltaDiscoveryResponse) {
		p.answers <- a
		got, err := s.Recv()
		if err != nil || !proto.Equal(got, a) {
			t.Fatalf("%v, %v; want %v", got, err, a)
		}
	}
	send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL})
	if got := asks(take(p, p.deltas)); got != `subscribe [] unsubscribe [] has [] nonce ""` {
		t.Error(got)
	}
	pass(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterURL, Nonce: "1", Resources: clusters(t, "a@1 b@1")})
	if got := p.kept(); got != "" {
		t.Errorf("before the acknowledgement: %s", got)
	}
	send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: "1"})
	take(p, p.deltas)
	if got := p.kept(); got != "a@1 b@1" {
		t.Error(got)
	}
	pass(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterURL, Nonce: "2", Resources: clusters(t, "b@2 c@1")})
	send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: "2", ErrorDetail: &rpcstatus.Status{Message: "bad"}})
	if q := take(p, p.deltas); q.GetErrorDetail().GetMessage() != "bad" || p.kept() != "a@1 b@1" {
		t.Errorf("refused: %v, %s", q, p.kept())
	}
	pass(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterURL, Nonce: "3", Resources: clusters(t, "c@2"), RemovedResources: []string{"a"}})
	pass(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: secretURL, Nonce: "4", Resources: []*discoveryv3.Resource{{Name: "key"}}})
	send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: secretURL, ResponseNonce: "4"})
	send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: "3", ResourceNamesUnsubscribe: []string{"b"}})
	take(p, p.deltas)
	take(p, p.deltas)
	if got := p.kept(); got != "c@2" || p.store.State().Resources != 1 {
		t.Errorf("%s, %+v", got, p.store.State())
	}
}

// TestFreshEnvoy: an Envoy that starts again gets the kept resources, and the control plane gets their versions, but not Envoy's acknowledgement.
func TestFreshEnvoy(t *testing.T) {
	p := newPlace(t)
	p.keep("a@1 b@1 c@1")
	s := p.connect()
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL, ResourceNamesSubscribe: []string{"*"}}))
	if got := asks(take(p, p.deltas)); got != `subscribe [*] unsubscribe [] has [a@1 b@1 c@1] nonce ""` {
		t.Error(got)
	}
	a, err := s.Recv()
	if err != nil || says(a) != "a@1 b@1 c@1 removed []" {
		t.Fatalf("%v, %v", a, err)
	}
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: a.GetNonce()}))
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: a.GetNonce(), ResourceNamesSubscribe: []string{"d"}}))
	if got := asks(take(p, p.deltas)); got != `subscribe [d] unsubscribe [] has [] nonce ""` {
		t.Error(got)
	}
	p.answers <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterURL, Nonce: "1", Resources: clusters(t, "b@2"), RemovedResources: []string{"c"}}
	if a, err = s.Recv(); err != nil || says(a) != "b@2 removed [c]" {
		t.Fatalf("%v, %v", a, err)
	}
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: "1"}))
	take(p, p.deltas)
	if got := p.kept(); got != "a@1 b@2" {
		t.Error(got)
	}
	// Envoy lists its resources itself when it opens another stream.
	s = p.connect()
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL, InitialResourceVersions: map[string]string{"a": "1"}}))
	if got := asks(take(p, p.deltas)); got != `subscribe [] unsubscribe [] has [a@1] nonce ""` {
		t.Error(got)
	}
}

// TestAlone: without a control plane Envoy gets the kept resources, and the answer that others do not exist. When the control
// plane can be reached again, the stream ends.
func TestAlone(t *testing.T) {
	p := newPlace(t)
	p.control.Stop()
	s := p.connect()
	_ = s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL}) // the stream may have ended already
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("with an empty store: %v", err)
	}
	p.keep("a@1 b@1")
	s = p.connect()
	ask := func(q *discoveryv3.DeltaDiscoveryRequest, want string) *discoveryv3.DeltaDiscoveryResponse {
		t.Helper()
		q.TypeUrl = clusterURL
		p.must(s.Send(q))
		a, err := s.Recv()
		if err != nil || says(a) != want {
			t.Fatalf("%v, %v; want %s", a, err, want)
		}
		return a
	}
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: listenerURL}))
	if none, err := s.Recv(); err != nil || none.GetTypeUrl() != listenerURL || len(none.GetResources()) > 0 {
		t.Fatalf("%v, %v; want no listeners", none, err)
	}
	a := ask(&discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: map[string]string{"a": "0"}}, "b@1 removed []")
	ask(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: a.GetNonce(), ResourceNamesSubscribe: []string{"a", "x"}}, "a@1 removed [x]")
	if since, stale := p.relay.Stale(); !stale || since.After(time.Now()) {
		t.Errorf("%v, %v", since, stale)
	}
	p.serve(p.address)
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "can be reached again") {
		t.Fatal(err)
	}
	s = p.connect()
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL, InitialResourceVersions: map[string]string{"b": "1"}}))
	take(p, p.deltas)
	if d, err := time.ParseDuration(p.alone.Load().(string)); err != nil || d <= 0 {
		t.Errorf("the control plane hears that the agent was alone for %v", p.alone.Load())
	}
	p.answers <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterURL, Nonce: "1"}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, stale := p.relay.Stale(); stale {
		t.Error("it is stale with a control plane")
	}
	s = p.connect()
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL}))
	take(p, p.deltas)
	if got := p.alone.Load(); got != "" {
		t.Errorf("with a control plane it hears that the agent was alone for %v", got)
	}
}

// whole is a response of State-of-the-World xDS with resources of some names.
func whole(t *testing.T, typeURL, nonce, names string) *discoveryv3.DiscoveryResponse {
	t.Helper()
	a := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: nonce, Nonce: nonce}
	for _, r := range clusters(t, names) {
		if typeURL == assignmentURL {
			if err := r.GetResource().MarshalFrom(&endpointv3.ClusterLoadAssignment{ClusterName: r.GetName()}); err != nil {
				t.Fatal(err)
			}
		}
		a.Resources = append(a.Resources, r.GetResource())
	}
	return a
}

// TestWholeState: resources that Envoy acknowledges with State-of-the-World xDS are kept, and nothing else. Clusters that a response leaves
// out are dropped, and so are assignments that Envoy does not request any more.
func TestWholeState(t *testing.T) {
	p := newPlace(t)
	s := p.connectWhole()
	round := func(q *discoveryv3.DiscoveryRequest, a *discoveryv3.DiscoveryResponse) {
		t.Helper()
		p.must(s.Send(q))
		if got := take(p, p.wholes); !proto.Equal(got, q) {
			t.Fatalf("%v, want %v", got, q)
		}
		if a == nil {
			return
		}
		p.answers <- a
		if got, err := s.Recv(); err != nil || !proto.Equal(got, a) {
			t.Fatalf("%v, %v; want %v", got, err, a)
		}
	}
	round(&discoveryv3.DiscoveryRequest{TypeUrl: clusterURL}, whole(t, clusterURL, "1", "a b"))
	round(&discoveryv3.DiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: "1"}, whole(t, clusterURL, "2", "a c"))
	round(&discoveryv3.DiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: "2"}, whole(t, clusterURL, "3", "d"))
	round(&discoveryv3.DiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: "3", ErrorDetail: &rpcstatus.Status{Message: "bad"}}, nil)
	if got := p.kept(); got != "a@ c@" {
		t.Error(got)
	}
	round(&discoveryv3.DiscoveryRequest{TypeUrl: assignmentURL, ResourceNames: []string{"a", "c"}}, whole(t, assignmentURL, "4", "a c"))
	round(&discoveryv3.DiscoveryRequest{TypeUrl: assignmentURL, ResourceNames: []string{"a", "c"}, ResponseNonce: "4"}, nil)
	round(&discoveryv3.DiscoveryRequest{TypeUrl: assignmentURL, ResourceNames: []string{"a"}, ResponseNonce: "4"}, nil)
	if got := written(p.store.All(assignmentURL)); got != "a@" {
		t.Error(got)
	}
}

// TestWholeStateAlone: without a control plane Envoy gets the kept resources, once. A cluster without kept endpoints gets an empty assignment.
func TestWholeStateAlone(t *testing.T) {
	p := newPlace(t)
	p.keep("a c")
	p.control.Stop()
	s := p.connectWhole()
	answered := func(typeURL, nonce string, names []string, want string) string {
		t.Helper()
		p.must(s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: names, ResponseNonce: nonce}))
		a, err := s.Recv()
		var got []string
		for _, body := range a.GetResources() {
			got = append(got, nameOf(body.GetValue()))
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Fatalf("%v, %v; want %s", got, err, want)
		}
		return a.GetNonce()
	}
	nonce := answered(clusterURL, "", nil, "a c")
	p.must(s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: nonce})) // not answered
	nonce = answered(assignmentURL, "", []string{"a", "c"}, "a c")
	answered(assignmentURL, nonce, []string{"a"}, "a")
	p.serve(p.address)
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "can be reached again") {
		t.Fatal(err)
	}
}

// TestNameOf: the names of resources are found without their descriptors, and garbage has none.
func TestNameOf(t *testing.T) {
	b, err := proto.Marshal(&clusterv3.Cluster{Name: "name", AltStatName: "other"})
	if err != nil || nameOf(b) != "name" {
		t.Errorf("%q, %v", nameOf(b), err)
	}
	for _, b := range []string{"", "\x0a\xff", "\xff", "\x12\x01x", "\x08\x01"} {
		if got := nameOf([]byte(b)); got != "" {
			t.Errorf("%q: %q", b, got)
		}
	}
}

// awaitHealth waits until the control plane receives the health of the workload, among other requests.
func awaitHealth[Q interface {
	GetTypeUrl() string
	GetErrorDetail() *rpcstatus.Status
}](p *place, from <-chan Q) string {
	p.Helper()
	for {
		if q := take(p, from); q.GetTypeUrl() == healthURL {
			return q.GetErrorDetail().GetMessage()
		}
	}
}

// TestHealth: each stream reports the health of the workload, after the request that identifies the proxy, and whenever it changes.
func TestHealth(t *testing.T) {
	p := newPlace(t)
	p.relay.Report(Health{Reason: "not yet"})
	s := p.connect()
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL}))
	if q := take(p, p.deltas); q.GetTypeUrl() != clusterURL {
		t.Errorf("the first request is %v", q)
	}
	if got := awaitHealth(p, p.deltas); got != "not yet" {
		t.Error(got)
	}
	p.relay.Report(Health{Healthy: true})
	p.relay.Report(Health{Healthy: true})
	if got := awaitHealth(p, p.deltas); got != "" {
		t.Error(got)
	}
	p.relay.Report(Health{Reason: "gone"})
	if got := awaitHealth(p, p.deltas); got != "gone" {
		t.Error(got)
	}
	w := p.connectWhole()
	p.must(w.Send(&discoveryv3.DiscoveryRequest{TypeUrl: clusterURL}))
	if got := awaitHealth(p, p.wholes); got != "gone" {
		t.Error(got)
	}
	p.control.Stop()
	p.relay.Report(Health{Healthy: true})
	if _, err := s.Recv(); err == nil {
		t.Fatal("the stream goes on")
	}
	p.serve(p.address)
	s = p.connect()
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL}))
	if got := awaitHealth(p, p.deltas); got != "" {
		t.Errorf("after the control plane has come back: %s", got)
	}
}
