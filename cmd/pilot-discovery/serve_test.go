package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const reviews = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews.shop.svc.cluster.local]
  ports: [{number: 80, name: http, protocol: HTTP}]
  location: MESH_INTERNAL
  resolution: STATIC
  endpoints: [{address: %s}]
`

// controlPlane is one that runs in this process.
type controlPlane struct {
	t          *testing.T
	dir        string
	http, grpc string
	cancel     context.CancelFunc
	exit       chan int
	mu         sync.Mutex
	log        bytes.Buffer
}

// Write implements io.Writer for the log of the program.
func (c *controlPlane) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(b)
}

func (c *controlPlane) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.String()
}

// free is an address that is not in use at the moment.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func start(t *testing.T, flags ...string) *controlPlane {
	t.Helper()
	return startIn(t, t.TempDir(), flags...)
}

// startIn starts a control plane with a directory.
func startIn(t *testing.T, dir string, flags ...string) *controlPlane {
	t.Helper()
	put(t, filepath.Join(dir, "reviews.yaml"), fmt.Sprintf(reviews, "10.1.0.1"))
	return startEmpty(t, dir, flags...)
}

// startEmpty starts a control plane with the files in a directory.
func startEmpty(t *testing.T, dir string, flags ...string) *controlPlane {
	t.Helper()
	c := &controlPlane{t: t, dir: dir, http: free(t), grpc: free(t), exit: make(chan int, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	args := append([]string{"discovery", "--configDir=" + c.dir, "--httpAddr=" + c.http, "--grpcAddr=" + c.grpc, "--monitoringAddr=", "--secureGRPCAddr="}, flags...)
	cmd := root(args)
	cmd.SetErr(c)
	go func() { c.exit <- run.Command(ctx, cmd, args) }()
	return c
}

// dial returns a plaintext connection to the control plane.
func (c *controlPlane) dial() *grpc.ClientConn {
	c.t.Helper()
	conn, err := grpc.NewClient(c.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// write puts a file into the directory, whole at once.
func (c *controlPlane) write(name, text string) {
	c.t.Helper()
	tmp := filepath.Join(c.dir, "."+name)
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(c.dir, name)); err != nil {
		c.t.Fatal(err)
	}
}

// until reads a page until ok likes it.
func (c *controlPlane) until(page string, ok func(code int, body string) bool) {
	c.t.Helper()
	limit := time.After(20 * time.Second)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	code, body := 0, ""
	for {
		if resp, err := http.Get("http://" + c.http + page); err == nil {
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if code, body = resp.StatusCode, string(b); ok(code, body) {
				return
			}
		}
		select {
		case <-again.C:
		case n := <-c.exit:
			c.t.Fatalf("the program ended with %d:\n%s", n, c.said())
		case <-limit:
			c.t.Fatalf("%s stayed %d %s\n%s", page, code, body, c.said())
		}
	}
}

func (c *controlPlane) ready() {
	c.t.Helper()
	c.until("/ready", func(code int, _ string) bool { return code == http.StatusOK })
}

// stop ends the program and returns its exit code.
func (c *controlPlane) stop() int {
	c.t.Helper()
	c.cancel()
	http.DefaultClient.CloseIdleConnections()
	select {
	case code := <-c.exit:
		return code
	case <-time.After(20 * time.Second):
		c.t.Fatalf("the program does not end:\n%s", c.said())
		return -1
	}
}

// TestServe is the life of a control plane: it starts, a proxy connects, a file changes, a file is broken, it stops.
func TestServe(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := start(t, "--log_as_json", "--resync=1m")
	c.ready()

	conn := c.dial()
	defer func() { _ = conn.Close() }()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const service = "outbound|80||reviews.shop.svc.cluster.local"
	ask := func(q *discoveryv3.DeltaDiscoveryRequest) {
		if err := stream.Send(q); err != nil {
			t.Fatal(err)
		}
	}
	next := func(typ resource.Type) string {
		r, err := stream.Recv()
		if err != nil || r.TypeUrl != typ.URL() {
			t.Fatalf("got %v, %v, want %s", r, err, typ)
		}
		ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
		return r.String()
	}
	node := &corev3.Node{Id: "sidecar~10.9.0.1~web-1.shop~shop.svc.cluster.local"}
	ask(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()})
	if r := next(resource.Cluster); !strings.Contains(r, service) {
		t.Errorf("the clusters are %s", r)
	}
	ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Endpoint.URL(), ResourceNamesSubscribe: []string{service}})
	if r := next(resource.Endpoint); !strings.Contains(r, "10.1.0.1") {
		t.Errorf("the endpoints are %s", r)
	}
	c.write("reviews.yaml", fmt.Sprintf(reviews, "10.1.0.2"))
	if r := next(resource.Endpoint); !strings.Contains(r, "10.1.0.2") {
		t.Errorf("the endpoints are %s", r)
	}

	c.write("broken.yaml", "kind: [")
	c.until("/debug/problemz", func(_ int, body string) bool { return strings.Contains(body, "broken.yaml") })
	c.until("/debug/syncz", func(_ int, body string) bool { return strings.Count(body, "SYNCED") == 2 })
	c.until("/debug/config_dump?proxyID=web-1.shop&types=eds", func(_ int, body string) bool { return strings.Contains(body, "10.1.0.2") })
	c.until("/metrics", func(_ int, body string) bool { return strings.Contains(body, `pilot_problems{level="error"} 1`) })

	c.write("broken.yaml", "# mended")
	c.until("/debug/problemz", func(_ int, body string) bool { return !strings.Contains(body, "broken.yaml") })
	c.until("/ready", func(int, string) bool { return strings.Contains(c.said(), "problem mended") })

	if code := c.stop(); code != run.ExitDone {
		t.Errorf("exit %d\n%s", code, c.said())
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
	checkLog(t, c.said())
}

// checkLog checks that the log is JSON and has all expected messages.
func checkLog(t *testing.T, log string) {
	t.Helper()
	want := map[string]bool{"command line": false, "starting": false, "commit": false, "ready": false, "problem": false, "problem mended": false, "proxy connected": false, "proxy gone": false, "stopped": false}
	changed := false
	for line := range strings.Lines(log) {
		var entry struct{ Msg, Remark, Changed string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("not JSON: %s", line)
		}
		want[entry.Msg] = true
		changed = changed || strings.HasPrefix(entry.Changed, "ServiceEntry shop/")
	}
	if !changed {
		t.Errorf("no commit names an object:\n%s", log)
	}
	for msg, said := range want {
		if !said {
			t.Errorf("%q was not said:\n%s", msg, log)
		}
	}
}

// TestAddressTaken: the program ends at once, names the flag with the address, and exits with ExitFailed.
func TestAddressTaken(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, flag := range []string{"httpAddr", "monitoringAddr", "grpcAddr"} {
		c := start(t, "--"+flag+"="+l.Addr().String())
		if code := <-c.exit; code != run.ExitFailed || !strings.Contains(c.said(), "--"+flag) || !strings.Contains(c.said(), "choose another") {
			t.Errorf("%s: exit %d, said %s", flag, code, c.said())
		}
		c.cancel()
	}
}

// TestBadNode: an invalid node affects only the proxy that sent it.
func TestBadNode(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := start(t)
	c.ready()
	conn := c.dial()
	defer func() { _ = conn.Close() }()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "me"}, TypeUrl: resource.Cluster.URL()}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "node id") {
		t.Errorf("the stream ended with %v", err)
	}
	c.ready()
	if code := c.stop(); code != run.ExitDone {
		t.Errorf("exit %d\n%s", code, c.said())
	}
}

// TestRefusedSettings: while settings are refused that are not known yet, the control plane is not ready and says which setting is wrong. When they are
// mended it is ready.
func TestRefusedSettings(t *testing.T) {
	for flag, of := range map[string]struct{ bad, good, reason string }{
		"meshConfig":     {"accessLogFile: [1]", "accessLogFile: /dev/null", ":1: error: MeshConfig: accessLogFile: must be a string, not a list"},
		"networksConfig": {"networks: {n: {endpoints: [{fromRegistry: c}], gateways: [{address: 1.2.3.4}]}}", "networks: {}", ":1: error: MeshNetworks: networks[n].gateways[0].port: a port is a number from 1 to 65535, not 0"},
	} {
		t.Run(flag, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "settings.yaml")
			put(t, file, of.bad)
			c := start(t, "--"+flag+"="+file)
			c.until("/ready", func(code int, body string) bool {
				return code == http.StatusServiceUnavailable && strings.Contains(body, " has not been read: "+file+of.reason)
			})
			put(t, file, of.good)
			c.ready()
			c.stop()
		})
	}
}
