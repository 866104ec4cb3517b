package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/agent/secret"
	"github.com/pilotmesh/pilot/test/testbed"
)

// stuck is a service whose host cannot be resolved.
const stuck = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: stuck, namespace: shop}
spec:
  hosts: [stuck.example.com]
  location: MESH_EXTERNAL
  resolution: DNS
  ports: [{number: 8, name: main, protocol: TCP}]
`

// silentDNS makes Envoy ask a DNS server that never answers.
func silentDNS(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return fmt.Sprintf(`typed_dns_resolver_config:
  name: envoy.network.dns_resolver.cares
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig
    resolvers: [{socket_address: {address: 127.0.0.1, port_value: %d}}]
`, conn.LocalAddr().(*net.UDPAddr).Port)
}

// pilotctl runs a command against the control plane, and returns its exit code and output.
func (b *bed) pilotctl(args ...string) (code int, output string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, controlBinary, append(args, "--address", "http://"+b.HTTP)...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		b.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// waits checks the answer of pilotctl wait.
func (b *bed) waits(object string, code int, text string) {
	b.Helper()
	got, out := b.pilotctl("wait", "--for=live", object, "-n", "shop", "--timeout", "2s")
	if got != code || !strings.Contains(out, text) {
		b.Errorf("wait for %s: %d, %s; want %d, %s", object, got, out, code, text)
	}
}

// warms waits until proxy-status says of the only proxy that it does not use some resource yet.
func (b *bed) warms(typ, name string) {
	b.Helper()
	b.await("proxy-status to say that "+name+" is warming", func(ctx context.Context) error {
		page, err := b.Get(ctx, "/debug/syncz")
		if err != nil {
			return err
		}
		var list []struct {
			Types map[string]struct{ Warming []string } `json:"resources"`
		}
		if err := json.Unmarshal([]byte(page), &list); err != nil || len(list) != 1 || strings.Join(list[0].Types[typ].Warming, " ") != name {
			return fmt.Errorf("%w: it says %s", err, page)
		}
		return nil
	})
}

// TestWarmingCluster: a cluster of a running Envoy does not warm. proxy-status says so, its object is not live, and others are.
func TestWarmingCluster(t *testing.T) {
	for _, node := range []testbed.Node{{}, {SotW: true}} {
		t.Run(node.Variant(), func(t *testing.T) {
			b := newBed(t)
			b.serve()
			o := options()
			o.Env = []string{"ISTIO_BOOTSTRAP_OVERRIDE=" + write(t, "override.yaml", silentDNS(t))}
			b.ready(o, node)
			b.waits("serviceentry/web", 0, "is live on 1 of 1")
			if _, err := b.Write("stuck.yaml", stuck); err != nil {
				t.Fatal(err)
			}
			b.warms("CDS", "outbound|8||stuck.example.com")
			b.waits("serviceentry/stuck", 1, "app.shop, which has it and does not use it yet, because it is warming CDS outbound|8||stuck.example.com")
			b.waits("serviceentry/web", 0, "is live on 1 of 1")
			if _, out := b.pilotctl("proxy-status"); !strings.Contains(out, "app.shop CDS does not use yet: outbound|8||stuck.example.com") {
				t.Error(out)
			}
			if err := b.Remove("stuck.yaml"); err != nil {
				t.Fatal(err)
			}
			b.warms("CDS", "")
		})
	}
}

// served is a service of the proxy itself.
const served = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: served, namespace: shop}
spec:
  hosts: [served.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[1]d, name: main, protocol: TCP}]
  endpoints: [{address: 127.1.0.1, ports: {main: %[1]d}}]
`

// TestWarmingListener: an Envoy acknowledges a listener at once, and waits for its certificate, which no server sends, for two seconds before
// it uses the listener. Until then the object that the listener is made of is not live.
func TestWarmingListener(t *testing.T) {
	f := newForeign(newBed(t))
	l, err := secret.Listen(t.Context(), f.socket) // the kernel takes connections; no program reads them
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ports, err := testbed.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	f.serve()
	f.ready(f.options(), testbed.Node{})
	if _, err := f.Write("served.yaml", fmt.Sprintf(served, ports[0])); err != nil {
		t.Fatal(err)
	}
	listener := fmt.Sprintf("127.1.0.1_%d", ports[0])
	f.warms("LDS", listener)
	var behind struct{ Behind []struct{ Warming []string } }
	page, err := f.Get(t.Context(), "/debug/live?kind=ServiceEntry&namespace=shop&name=served")
	if err == nil {
		err = json.Unmarshal([]byte(page), &behind)
	}
	if err != nil || len(behind.Behind) != 1 || strings.Join(behind.Behind[0].Warming, " ") != "LDS "+listener {
		t.Errorf("%v, %s", err, page)
	}
	f.warms("LDS", "")
	f.waits("serviceentry/served", 0, "is live on 1 of 1")
}
