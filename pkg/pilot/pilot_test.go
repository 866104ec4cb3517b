package pilot_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotmesh/pilot/pkg/pilot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ratings = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ratings, namespace: shop}
spec: {hosts: [ratings.example], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 192.0.2.1}]}
`

func Example() {
	mesh, err := pilot.New(pilot.Options{})
	if err != nil {
		panic(err)
	}
	if err := mesh.Apply(ratings); err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- mesh.Serve(ctx, l) }() // proxies connect to l.Addr()
	problems, err := mesh.Problems(ctx)
	fmt.Println(len(problems), "problems", err)
	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// 0 problems <nil>
	// ended: <nil>
}

// serve runs a mesh until the test ends, and returns its address.
func serve(t *testing.T, m *pilot.Mesh) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func newMesh(t *testing.T, o pilot.Options, documents string) *pilot.Mesh {
	t.Helper()
	m, err := pilot.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Apply(documents); err != nil {
		t.Fatal(err)
	}
	return m
}

// stream is a delta stream of a proxy at the address of an endpoint of ratings.
type stream struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	t *testing.T
}

const (
	clusters  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	listeners = "type.googleapis.com/envoy.config.listener.v3.Listener"
)

// connect asks for all resources of a type.
func connect(t *testing.T, address, typeURL string) stream {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(func() { cancel(); _ = conn.Close() })
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	node := &corev3.Node{Id: "sidecar~192.0.2.1~ratings.shop~shop.svc.cluster.local"}
	if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typeURL, ResourceNamesSubscribe: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	return stream{s, t}
}

// await takes responses until one satisfies a condition.
func (s stream) await(what string, met func(*discoveryv3.DeltaDiscoveryResponse) bool) {
	s.t.Helper()
	for {
		got, err := s.Recv()
		if err != nil {
			s.t.Fatalf("%s: %v", what, err)
		}
		if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: got.TypeUrl, ResponseNonce: got.Nonce}); err != nil {
			s.t.Fatalf("%s: %v", what, err)
		}
		if met(got) {
			return
		}
	}
}

func has(name string) func(*discoveryv3.DeltaDiscoveryResponse) bool {
	return func(got *discoveryv3.DeltaDiscoveryResponse) bool {
		return slices.ContainsFunc(got.Resources, func(r *discoveryv3.Resource) bool { return r.Name == name })
	}
}

// TestServe: a proxy gets the clusters of the mesh, and the changes that later calls make.
func TestServe(t *testing.T) {
	m := newMesh(t, pilot.Options{}, ratings)
	s := connect(t, serve(t, m), clusters)
	s.await("the first clusters", has("outbound|80||ratings.example"))
	if err := m.Apply(strings.ReplaceAll(ratings, "ratings", "reviews")); err != nil {
		t.Fatal(err)
	}
	s.await("the second service", has("outbound|80||reviews.example"))
	if err := m.Delete("ServiceEntry", "shop", "ratings"); err != nil {
		t.Fatal(err)
	}
	s.await("the removed service", func(got *discoveryv3.DeltaDiscoveryResponse) bool {
		return slices.Contains(got.RemovedResources, "outbound|80||ratings.example")
	})
}

// TestRefused: a refused object leaves the others and its own last good version in force.
func TestRefused(t *testing.T) {
	m := newMesh(t, pilot.Options{}, ratings)
	err := m.Apply(strings.ReplaceAll(ratings, "number: 80", "number: 0") + "---" + strings.ReplaceAll(ratings, "ratings", "reviews"))
	if err == nil || !strings.Contains(err.Error(), "shop/ratings") {
		t.Errorf("the error is %v, want one about shop/ratings", err)
	}
	serve(t, m)
	problems, err := m.Problems(t.Context())
	if err != nil || len(problems) != 1 || problems[0].Name != "ratings" || problems[0].Severity != "error" || problems[0].Code == "" {
		t.Errorf("problems %+v, error %v", problems, err)
	}
	if err := m.Apply("kind: ["); err == nil {
		t.Error("a document that is no YAML is accepted")
	}
	if err := m.Delete("Mistake", "shop", "ratings"); err == nil {
		t.Error("an object of an unknown kind is deleted")
	}
	if _, err := pilot.New(pilot.Options{MeshConfig: "trustDomain: [a]"}); err == nil {
		t.Error("a wrong mesh configuration is accepted")
	}
}

// TestRefusedPolicy: a policy that cannot be read denies where there was none before.
func TestRefusedPolicy(t *testing.T) {
	const policy = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: closed, namespace: shop}
spec: {rules: [{mistake: true}]}
`
	m := newMesh(t, pilot.Options{}, ratings)
	if err := m.Apply(policy); err == nil {
		t.Error("an unknown field of a policy is accepted")
	}
	s := connect(t, serve(t, m), listeners)
	problems, err := m.Problems(t.Context())
	if err != nil || len(problems) != 1 || problems[0].Kind != "AuthorizationPolicy" {
		t.Fatalf("problems %+v, error %v", problems, err)
	}
	s.await("a filter that denies", denies)
	if err := m.Delete("AuthorizationPolicy", "shop", "closed"); err != nil {
		t.Fatal(err)
	}
	s.await("the removed policy", func(got *discoveryv3.DeltaDiscoveryResponse) bool { return !denies(got) })
}

// denies reports whether a response has a filter for access.
func denies(got *discoveryv3.DeltaDiscoveryResponse) bool {
	return slices.ContainsFunc(got.Resources, func(r *discoveryv3.Resource) bool {
		return bytes.Contains(r.GetResource().GetValue(), []byte("envoy.filters.http.rbac"))
	})
}
