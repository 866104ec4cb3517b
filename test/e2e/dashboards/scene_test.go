package dashboards

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

const (
	// patience is how long anything may take that is sure to happen.
	patience = time.Minute
	// server is the address of the server's inbound listeners.
	server = "127.1.0.2"
)

// The programs, found or built once by TestMain.
var agentBinary, discoveryBinary, controlBinary, envoyBinary, promBinary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "dashboards-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = prepare(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		return 1
	}
	return m.Run()
}

func prepare(ctx context.Context, dir string) (err error) {
	root, err := repo.Root()
	if err != nil {
		return err
	}
	if envoyBinary, _, err = envoy.Find(ctx, root); err != nil {
		return err
	}
	for name, into := range map[string]*string{"pilot-agent": &agentBinary, "pilot-discovery": &discoveryBinary, "pilotctl": &controlBinary} {
		if *into, err = testbed.FindOrBuild(ctx, root, name, dir); err != nil {
			return err
		}
	}
	if promBinary = os.Getenv("PROMETHEUS_QUERIES"); promBinary != "" {
		return nil
	}
	promBinary = filepath.Join(dir, "prometheus")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", promBinary, ".")
	cmd.Dir = filepath.Join(root, "test", "prometheus")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building test/prometheus: %w\n%s", err, out)
	}
	return nil
}

// mesh is the configuration: a client in the namespace shop, a server in the namespace store, a service without endpoints, and one outside.
const mesh = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: cart, namespace: store}
spec:
  hosts: [cart.store.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[1]d, name: http, protocol: HTTP}, {number: %[2]d, name: grpc, protocol: GRPC}, {number: %[3]d, name: tcp, protocol: TCP}]
  endpoints:
  - address: 127.1.0.2
    ports: {http: %[4]d, grpc: %[5]d, tcp: %[6]d}
    serviceAccount: cart
    labels: {app: cart, version: v1, service.istio.io/workload-name: cart-v1, security.istio.io/tlsMode: istio}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: gone, namespace: store}
spec:
  hosts: [gone.store.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[1]d, name: http, protocol: HTTP}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: store}
spec:
  hosts: [api.example.com]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: %[1]d, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: %[4]d}}]
---
# Both proxies run on one machine, where only one of them can listen for the services.
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: cart, namespace: store}
spec:
  workloadSelector: {labels: {app: cart}}
  egress: [{hosts: [~/*]}]
`

// bed is the mesh of the test.
type bed struct {
	*testing.T
	*testbed.Discovery
	client, server *testbed.Agent
	authority      *certs.Authority
	roots          string // file with the root of the authority
	// The ports of the client's proxy, and the ones at which the server's applications listen.
	http, grpc, tcp, httpBack, grpcBack, tcpBack int
	requests                                     *http.Client
	// before are the counts of the last scrapes.
	before map[*testbed.Agent]counts
	health healthpb.HealthClient
}

// scene starts the mesh, sends a round of requests before each of three scrapes, and returns the scrapes.
func scene(t *testing.T) (all []scrape) {
	t.Helper()
	b := open(t)
	b.warm()
	for n := range 3 {
		b.round()
		all = append(all, b.page(b.client, n), b.page(b.server, n), b.plane(n))
	}
	return all
}

func open(t *testing.T) *bed {
	t.Helper()
	ports, err := testbed.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, http: ports[0], grpc: ports[1], tcp: ports[2], requests: testbed.NewClient(), before: map[*testbed.Agent]counts{}}
	t.Cleanup(b.requests.CloseIdleConnections)
	b.serve()
	if b.Discovery, err = testbed.NewDiscovery(discoveryBinary, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(t.TempDir(), "mesh.yaml")
	if err := os.WriteFile(settings, []byte("defaultProviders: {metrics: [prometheus]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.TLSOnly()
	b.plugIn()
	b.Args = []string{"--meshConfig=" + settings}
	if _, err := b.Write("mesh.yaml", fmt.Sprintf(mesh, b.http, b.grpc, b.tcp, b.httpBack, b.grpcBack, b.tcpBack)); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	b.server = b.agent("cart", "store", "v1", server)
	b.client = b.agent("shopper", "shop", "v2", "127.1.0.1", "PROV_CERT="+b.former("shopper", "shop", "shopper-v2/shopper/v2/shopper/v2/east"))
	conn, err := grpc.NewClient("passthrough:///"+testbed.Loopback(b.grpc), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("cart.store.svc.cluster.local"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	b.health = healthpb.NewHealthClient(conn)
	return b
}

// serve starts the applications of the server.
func (b *bed) serve() {
	b.Helper()
	listen := func() (net.Listener, int) {
		l, err := testbed.Listen()
		if err != nil {
			b.Fatal(err)
		}
		return l, l.Addr().(*net.TCPAddr).Port
	}
	forHTTP, port := listen()
	b.httpBack = port
	web := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/status/")); err == nil {
			w.WriteHeader(code)
		}
		_, _ = io.WriteString(w, strings.Repeat("a", 1000))
	})}
	go func() { _ = web.Serve(forHTTP) }() // ends by Close
	b.Cleanup(func() { _ = web.Close() })
	forGRPC, port := listen()
	b.grpcBack = port
	rpc := grpc.NewServer()
	healthpb.RegisterHealthServer(rpc, health.NewServer())
	go func() { _ = rpc.Serve(forGRPC) }() // ends by Stop
	b.Cleanup(rpc.Stop)
	tcp, err := testbed.StartTCP("cart")
	if err != nil {
		b.Fatal(err)
	}
	b.tcpBack = tcp.Port
	b.Cleanup(func() { _ = tcp.Close() })
}

// plugIn gives the control plane an authority that the test has, too.
func (b *bed) plugIn() {
	b.Helper()
	var err error
	if b.authority, err = certs.NewAuthority("mesh"); err != nil {
		b.Fatal(err)
	}
	dir, pair := b.TempDir(), b.authority.Pair()
	b.files(dir, map[string]string{"ca-cert.pem": pair.Cert, "ca-key.pem": pair.Key, "cert-chain.pem": pair.Cert, "root-cert.pem": pair.Cert})
	b.Env, b.roots = append(b.Env, "ROOT_CA_DIR="+dir), filepath.Join(dir, "root-cert.pem")
}

// former returns a folder with a certificate that an agent shows to the authority when it asks for another one. It says what the control plane has said about
// the workload before, by its pod: see TestAbout in internal/security/ca and TestCertificatesNameWorkloads in test/cluster/proxies.
func (b *bed) former(account, namespace, about string) string {
	b.Helper()
	pair, err := b.authority.Issue(certs.Identity{URIs: []string{"spiffe://cluster.local/ns/" + namespace + "/sa/" + account}}, func(c *x509.Certificate) {
		c.Subject = pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{{Type: identity.AboutType(), Value: about}}}
	})
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	b.files(dir, map[string]string{"cert-chain.pem": pair.Cert, "key.pem": pair.Key, "root-cert.pem": b.authority.Pair().Cert})
	return dir
}

func (b *bed) files(dir string, of map[string]string) {
	b.Helper()
	for name, text := range of {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
}

// agent starts the proxy of a workload, and waits until it is ready.
func (b *bed) agent(app, namespace, version, ip string, more ...string) *testbed.Agent {
	b.Helper()
	args, env, err := b.Certified(b.Context(), controlBinary, b.TempDir(), namespace, app)
	if err != nil {
		b.Fatal(err)
	}
	o := testbed.AgentOptions{
		Binary: agentBinary, Envoy: envoyBinary, Args: append(args, "--terminationDrainDuration=10ms"),
		Env: append(env, fmt.Sprintf(`ISTIO_METAJSON_LABELS={"app":%q,"version":%q}`, app, version), "ISTIO_META_CLUSTER_ID=east",
			"ISTIO_META_WORKLOAD_NAME="+app+"-"+version, `ISTIO_METAJSON_ANNOTATIONS={"sidecar.istio.io/statsFlushInterval":"1s"}`),
	}
	o.Env = append(append(o.Env, "XDS_ROOT_CA="+b.roots), more...)
	a, err := testbed.StartAgent(o, b.TempDir(), testbed.Node{Name: app, Namespace: namespace, IP: ip, Discovery: b.Secure})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		a.Stop()
		if b.Failed() {
			b.Logf("the log of the agent %s ends:\n%s", app, a.Log())
		}
	})
	if err := a.AwaitReady(b.Context()); err != nil {
		b.Fatal(err)
	}
	return a
}

// round sends 15 requests with the answer 200 and 3 with 500, 3 calls over gRPC with OK and 3 with NOT_FOUND (5), 3 requests to the
// service without endpoints, 3 to the service outside, 3 to the server without a proxy and certificate, and 3 connections over TCP.
func (b *bed) round() {
	b.Helper()
	here := testbed.Loopback(b.http)
	b.get(15, here, "cart.store.svc.cluster.local", "/", http.StatusOK)
	b.get(3, here, "cart.store.svc.cluster.local", "/status/500", http.StatusInternalServerError)
	b.get(3, here, "gone.store.svc.cluster.local", "/", http.StatusServiceUnavailable)
	b.get(3, here, "api.example.com", "/", http.StatusOK)
	b.get(3, net.JoinHostPort(server, strconv.Itoa(b.httpBack)), "cart", "/", http.StatusOK)
	for range 3 {
		b.call("", codes.OK)
		b.call("nothing", codes.NotFound)
		if name, err := testbed.Greeting(b.Context(), b.tcp, ""); err != nil || name != "cart" {
			b.Fatalf("the server over TCP: %q, %v", name, err)
		}
	}
}

// warm waits until the server answers the client over each protocol.
func (b *bed) warm() {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	err := testbed.Until(ctx, "answers over each protocol", func(ctx context.Context) error {
		over1 := b.ask(ctx, testbed.Loopback(b.http), "cart.store.svc.cluster.local", "/", http.StatusOK)
		_, over2 := b.health.Check(ctx, &healthpb.HealthCheckRequest{})
		_, overTCP := testbed.Greeting(ctx, b.tcp, "")
		return errors.Join(over1, over2, overTCP)
	})
	if err != nil {
		b.Fatal(err)
	}
}

// get sends requests and wants a status.
func (b *bed) get(times int, address, host, path string, want int) {
	b.Helper()
	for range times {
		if err := b.ask(b.Context(), address, host, path, want); err != nil {
			b.Fatal(err)
		}
	}
}

// ask sends one request. Any status but the wanted one is an error.
func (b *bed) ask(ctx context.Context, address, host, path string, want int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return err
	}
	req.Host = host
	resp, err := b.requests.Do(req)
	if err != nil {
		return fmt.Errorf("a request to %s%s: %w", host, path, err)
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != want {
		err = fmt.Errorf("%s%s: status %d, want %d; the answer is %.200q", host, path, resp.StatusCode, want, text)
	}
	return err
}

// call asks for the health of a service over gRPC, and wants a status.
func (b *bed) call(service string, want codes.Code) {
	b.Helper()
	_, err := b.health.Check(b.Context(), &healthpb.HealthCheckRequest{Service: service})
	if status.Code(err) != want {
		b.Fatalf("a call over gRPC: %v, want %v", err, want)
	}
}

// page returns the metrics of an agent when everything of rounds 0 to n is counted: Envoy adds to its histograms every few seconds only. What
// counted before round 0 is in every page.
func (b *bed) page(a *testbed.Agent, n int) (page scrape) {
	b.Helper()
	requests := 15 + 3 + 6 + 3 + 3 // cart, gone and api
	if a == b.server {
		requests = 15 + 3 + 6 + 3 // from the client, and without a proxy
	}
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	err := testbed.Until(ctx, "the metrics of "+a.Node.Name, func(ctx context.Context) (err error) {
		if page, err = b.scrape(ctx, "http://"+testbed.Loopback(a.StatusPort)+"/stats/prometheus"); err != nil {
			return err
		}
		before := b.before[a]
		now, err := totals(page.Text)
		if err != nil || n == 0 && now.requests < float64(requests) || n > 0 && now != before.plus(requests, 3) {
			return errors.Join(fmt.Errorf("they are %+v after round %d, and were %+v", now, n, before), err)
		}
		b.before[a] = now
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	page.At = int64(15 * n)
	page.Target = map[string]string{"app": a.Node.Name, "namespace": a.Node.Namespace, "pod": a.Node.Name, "instance": a.Node.IP + ":15020", "job": "kubernetes-pods"}
	return page
}

// plane returns the metrics of the control plane.
func (b *bed) plane(n int) scrape {
	b.Helper()
	page, err := b.scrape(b.Context(), "http://"+b.HTTP+"/metrics")
	if err != nil {
		b.Fatal(err)
	}
	page.At = int64(15 * n)
	page.Target = map[string]string{"app": "istiod", "namespace": "istio-system", "pod": "istiod-0", "instance": "127.0.0.1:15014", "job": "kubernetes-pods"}
	return page
}

// scrape reads a page of metrics as Prometheus does.
func (b *bed) scrape(ctx context.Context, url string) (page scrape, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return page, err
	}
	req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1")
	resp, err := b.requests.Do(req)
	if err != nil {
		return page, err
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d", url, resp.StatusCode)
	}
	return scrape{Text: string(text), Type: resp.Header.Get("Content-Type")}, err
}

// counts are the requests and ended connections that an agent's metrics have.
type counts struct{ requests, connections float64 }

func (c counts) plus(requests, connections int) counts {
	return counts{c.requests + float64(requests), c.connections + float64(connections)}
}

// totals sums up metrics. It is an error if the histograms do not have all requests yet, or an opened connection has not ended.
func totals(text string) (c counts, err error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return c, err
	}
	sum := func(name string) (sum float64) {
		for _, m := range families[name].GetMetric() {
			sum += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		return sum
	}
	c = counts{sum("istio_requests_total"), sum("istio_tcp_connections_closed_total")}
	for _, name := range []string{"istio_request_duration_milliseconds", "istio_request_bytes", "istio_response_bytes"} {
		if n := sum(name); n != c.requests {
			return c, fmt.Errorf("%s has %v of %v requests", name, n, c.requests)
		}
	}
	if n := sum("istio_tcp_connections_opened_total"); n != c.connections {
		return c, fmt.Errorf("%v of %v connections have ended", c.connections, n)
	}
	return c, nil
}
