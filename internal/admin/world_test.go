package admin

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop is the mesh of these tests: one service of two inline endpoints, one that selects a workload, and a rule.
const shop = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews.shop.svc.cluster.local]
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  location: MESH_INTERNAL
  resolution: STATIC
  endpoints: [{address: 10.1.0.1, labels: {version: v1}}, {address: 10.1.0.2, locality: eu/a}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ratings, namespace: shop}
spec:
  hosts: [ratings.shop.svc.cluster.local]
  ports: [{number: 9080, name: http, protocol: HTTP}]
  location: MESH_INTERNAL
  resolution: STATIC
  exportTo: ["."]
  workloadSelector: {labels: {app: ratings}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: ratings-1, namespace: shop}
spec: {address: 10.1.0.3, labels: {app: ratings}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec: {host: reviews, trafficPolicy: {connectionPool: {tcp: {maxConnections: 10}}}}
`

const sourceName = "file:mesh"

// world is a control plane without a source: tests hand its objects to the loop.
type world struct {
	t       *testing.T
	loop    *loop.Loop
	server  *server.Server
	metrics *Metrics
	ready   *Readiness
	options Options
	dial    func(context.Context, string) (net.Conn, error)
}

func newWorld(t *testing.T, docs string, problems ...api.Problem) *world {
	t.Helper()
	tables := state.New(state.Options{Sources: []string{sourceName}})
	graph := query.New(tables.DB, query.Options{Strict: true})
	build := run.Build{Version: "1.2.3", Go: "go1.27"}
	w := &world{t: t, metrics: NewMetrics(build), ready: new(Readiness)}
	commits, board := new(Commits), NewBoard(nil)
	w.loop = loop.New(tables, graph, class.Define(graph, tables), loop.Settings{
		Sources: []string{sourceName}, Observe: func(c loop.Commit) { w.metrics.Commit(c); commits.Observe(c) },
	})
	w.server = server.New(w.loop, server.Options{Observer: w.metrics})
	w.metrics.Watch(w.loop, w.server, board)
	w.options = Options{
		Build: build, Mesh: w.loop, Streams: w.server, Ready: w.ready, Metrics: w.metrics, Commits: commits, Board: board,
	}
	l := bufconn.Listen(1 << 20)
	w.dial = func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
	g := grpc.NewServer(w.server.GRPC()...)
	w.server.Register(g)
	w.background(func(ctx context.Context) { _ = w.loop.Run(ctx) })
	w.background(func(ctx context.Context) { _ = w.server.Run(ctx) })
	served := make(chan struct{})
	go func() { _ = g.Serve(l); close(served) }()
	t.Cleanup(func() { g.Stop(); <-served })

	batch := source.Batch{Source: sourceName, Synced: true, Problems: source.ProblemEvents(nil, problems)}
	for _, d := range api.Decode("mesh.yaml", []byte(docs)) {
		d.Check()
		if d.Object == nil {
			t.Fatal(d.Problems)
		}
		batch.Events = append(batch.Events, source.Event{Key: d.Key, Object: d.Object})
	}
	w.metrics.Counting(w.loop).Apply(batch)
	<-w.loop.Synced()
	w.settle()
	return w
}

// settle waits until the first commit has been reported and all first builds, including the first build of the problems, are done.
func (w *world) settle() {
	w.t.Helper()
	for pending := true; pending; {
		if err := w.loop.Inspect(w.t.Context(), func(v *loop.View) { pending = v.Graph.Pending() }); err != nil {
			w.t.Fatal(err)
		}
	}
}

// background runs fn until the test ends.
func (w *world) background(fn func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { fn(ctx); close(done) }()
	w.t.Cleanup(func() { cancel(); <-done })
}

// client is a proxy's delta stream.
type client struct {
	t      *testing.T
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	node   *corev3.Node
}

// connect is a proxy that has asked for its clusters and been answered.
func (w *world) connect(name string) (*client, *discoveryv3.DeltaDiscoveryResponse) {
	w.t.Helper()
	conn, err := grpc.NewClient("passthrough:///mesh", grpc.WithContextDialer(w.dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	metadata, err := structpb.NewStruct(map[string]any{"ISTIO_VERSION": "1.31.0", "CLUSTER_ID": "east"})
	if err != nil {
		w.t.Fatal(err)
	}
	c := &client{t: w.t, stream: stream, node: &corev3.Node{
		Id: "sidecar~10.9.0.1~" + name + "~shop.svc.cluster.local", Metadata: metadata,
	}}
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: resource.Cluster.URL()})
	return c, c.receive()
}

func (c *client) send(q *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	if err := c.stream.Send(q); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) receive() *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	r, err := c.stream.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// answer acknowledges a response, or rejects it if there is a reason.
func (c *client) answer(r *discoveryv3.DeltaDiscoveryResponse, reason string) {
	q := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}
	if reason != "" {
		q.ErrorDetail = &status.Status{Message: reason}
	}
	c.send(q)
}

// ask reads a page as a client with an address.
func (w *world) ask(address, page string) (int, string) {
	w.t.Helper()
	w.options.Log = quiet()
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, page, http.NoBody)
	r.RemoteAddr, r.Host = address, "127.0.0.1:8080"
	answer := httptest.NewRecorder()
	New(w.options).Handler().ServeHTTP(answer, r)
	return answer.Code, answer.Body.String()
}

const here = "127.0.0.1:4242"

// read reads a page of JSON into v.
func (w *world) read(page string, v any) {
	w.t.Helper()
	code, body := w.ask(here, page)
	if code != http.StatusOK {
		w.t.Fatalf("%s: %d %s", page, code, body)
	}
	if err := json.Unmarshal([]byte(body), v); err != nil {
		w.t.Fatalf("%s: %v in %s", page, err, body)
	}
}

// eventually reads a page until ok accepts it: a client's request needs a moment to be processed.
func eventually[T any](w *world, page string, ok func(T) bool) T {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		var v T
		w.read(page, &v)
		if ok(v) {
			return v
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s stayed %+v for a minute", page, v)
		}
	}
}

// metric is the value of the series with exactly that name and labels.
func (w *world) metric(series string) string {
	w.t.Helper()
	_, body := w.ask(here, "/metrics")
	for line := range strings.Lines(body) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == series {
			return value
		}
	}
	return "none"
}
