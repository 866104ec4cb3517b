package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// otherHost is a host beside web, which the workload uses late or not at all.
const otherHost = "other.shop.svc.cluster.local"

// onDemand is a sidecar that asks for the hosts that its workload uses.
func onDemand() testbed.Node {
	return testbed.Node{Name: "app", Namespace: "shop", Metadata: map[string]any{"ON_DEMAND_HOSTS": "true"}}
}

// other declares another service at a port of sidecars, and routes to both services.
func (b *bed) other(port int) {
	b.Helper()
	routes := func(name, host, header string) string {
		return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[2]s]
  http: [{headers: {response: {set: {x-edit: %[3]q}}}, route: [{destination: {host: %[2]s}}]}]
`, name, host, header)
	}
	if _, err := b.Write("other.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: other, namespace: shop}
spec:
  hosts: [%s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: %d}}]
`, otherHost, port, b.backend.port)+routes("web", webHost, "1")+routes("other", otherHost, "1")); err != nil {
		b.Fatal(err)
	}
}

// ask sends one request for the other host.
func (b *bed) ask(ctx context.Context, port int) error {
	code, err := b.request(ctx, port, otherHost)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("status %d", code)
	}
	return err
}

// explains checks an answer of pilotctl.
func (b *bed) explains(code int, text string, args ...string) {
	b.Helper()
	got, out := b.pilotctl(args...)
	if got != code || !strings.Contains(out, text) {
		b.Errorf("pilotctl %s: %d, %s; want %d, %s", strings.Join(args, " "), got, out, code, text)
	}
}

// TestHostsOnDemandAreExplained: pilotctl does not say of a sidecar with hosts on demand that it is behind, or that something of it is not live, because its workload
// has not asked for a host. It says why the sidecar does not have it. When the workload has asked, all is as with any other sidecar.
func TestHostsOnDemandAreExplained(t *testing.T) {
	b := newBed(t)
	b.other(b.port)
	b.serve()
	a := b.ready(options(), onDemand())
	admin := "http://" + testbed.Loopback(a.AdminPort)
	inStep := func(when string) {
		t.Helper()
		b.await("the proxy to be in step, "+when, func(context.Context) error {
			if _, out := b.pilotctl("proxy-status", "app"); strings.Contains(out, "NOT SENT") || strings.Contains(out, "STALE") || !strings.Contains(out, "SYNCED") {
				return errors.New(out)
			}
			if code, out := b.pilotctl("proxy-config", "all", "app", "--diff", "--admin", admin); code != 0 {
				return errors.New(out)
			}
			return nil
		})
	}
	inStep("before any request")
	const not = "1 sidecars get hosts on demand and have not asked for it yet"
	b.explains(0, "not asked for yet: the sidecar gets hosts on demand", "explain", "app", "host", "web")
	b.explains(0, "not asked for yet", "explain", "app", "cluster", fmt.Sprintf("outbound|%d||%s", b.port, webHost))
	b.explains(0, "not asked for yet", "explain", "app", "route", fmt.Sprintf("%s:%d", webHost, b.port))
	b.explains(1, "no Service and no ServiceEntry in force declares", "explain", "app", "host", "nowhere")
	b.waits("vs/web", 0, not)
	b.waits("vs/other", 0, not)

	b.answers()
	inStep("after a request")
	b.explains(0, "has asked for this one as "+webHost, "explain", "app", "host", "web")
	b.explains(0, "not asked for yet", "explain", "app", "host", "other")
	b.waits("vs/web", 0, "is live on 1 of 1 proxies")
	b.waits("serviceentry/web", 0, "is live on 1 of 1 proxies")
	b.waits("vs/other", 0, not)

	if _, err := b.Write("more.yaml", strings.ReplaceAll(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec: {host: HOST, trafficPolicy: {connectionPool: {http: {http1MaxPendingRequests: 7}}}}
`, "HOST", webHost)); err != nil {
		t.Fatal(err)
	}
	b.await("the edit", func(context.Context) error {
		if code, out := b.pilotctl("wait", "--for=live", "dr/web", "-n", "shop", "--timeout", "2s"); code != 0 || !strings.Contains(out, "is live on 1 of 1 proxies") {
			return errors.New(out)
		}
		return nil
	})
	inStep("after an edit")
	b.Discovery.Stop()
	b.serve()
	b.await("the sidecar to be back", func(context.Context) error {
		if code, out := b.pilotctl("wait", "--for=live", "vs/web", "-n", "shop", "--timeout", "2s"); code != 0 || !strings.Contains(out, "is live on 1 of 1 proxies") {
			return errors.New(out)
		}
		return nil
	})
	inStep("after a restart of the control plane")
	b.explains(0, "not asked for yet", "explain", "app", "host", "other")
}

// TestLastKnownGoodOfHostsOnDemand: while there is no control plane, Envoy and the agent are restarted, and a host that the workload has used is reached. A request for another
// host waits until the control plane is back, also at a port without a used host. Then the changes of that time arrive.
func TestLastKnownGoodOfHostsOnDemand(t *testing.T) {
	ports, err := testbed.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	l := &lonely{bed: newBed(t), options: options(), node: onDemand(), dir: t.TempDir()}
	l.other(ports[0])
	l.serve()
	l.node.Discovery = l.GRPC
	l.start()
	l.probed("ready\n")
	l.stored()
	l.Discovery.Stop()
	l.probed("ready, but stale: ")
	l.crash()
	l.answers()
	l.End(syscall.SIGTERM)
	l.start()
	l.probed("ready, but stale: ")

	waiting := make(chan error, 1)
	go func() { waiting <- l.ask(t.Context(), ports[0]) }()
	l.await("the request to wait in Envoy", func(ctx context.Context) error {
		n, err := l.Sum(ctx, `downstream_rq_active$`)
		select {
		case err := <-waiting:
			t.Fatalf("the request for a host that the sidecar does not have was answered without a control plane: %v", err)
		default:
		}
		if err == nil && n == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	l.followed()
	if err := <-waiting; err != nil {
		t.Errorf("the request that waited: %v", err)
	}
	if err := l.ask(t.Context(), ports[0]); err != nil {
		t.Errorf("another request: %v", err)
	}
}
