package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// dualPod is a Service with addresses of both IP versions, and its pod with both loopback addresses. The Service has the port of its pod.
func dualPod(s service, address, other string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: shop}
spec:
  selector: {app: %[1]s}
  clusterIP: 192.0.2.1
  clusterIPs: [192.0.2.1, "2001:db8::1"]
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv4, IPv6]
  ports: [{name: http, port: %[2]d, targetPort: %[3]d}]
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s-1, namespace: shop, labels: {app: %[1]s}}
spec: {containers: [{name: app, image: app}]}
status: {phase: Running, podIP: %[4]q, podIPs: [{ip: %[4]q}, {ip: %[5]q}]}
`, s.name, s.port, s.versions[0].Port, address, other)
}

// TestDualStack: in a dual-stack mesh a client reaches its proxy at both loopback addresses, and the proxy reaches a pod that serves at its second address
// only, whichever IP version that is. A proxy without addresses of IPv6 does not get there by IPv6, and reaches the pod that serves by IPv4.
func TestDualStack(t *testing.T) {
	six, err := testbed.StartHTTPv6("six")
	if err != nil {
		t.Skip("this machine has no IPv6: ", err)
	}
	t.Cleanup(func() { _ = six.Close() })
	t.Setenv("ISTIO_DUAL_STACK", "true")
	for _, node := range []testbed.Node{{}, {SotW: true}} {
		t.Run(node.Variant(), func(t *testing.T) {
			bySix, byFour := newService(t, "six", six), newService(t, "four", backend(t, "four"))
			b := newBed(t, "six.yaml", dualPod(bySix, "127.0.0.1", "::1"), "four.yaml", strings.NewReplacer("192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2").Replace(dualPod(byFour, "::1", "127.0.0.1")))
			node.Name, node.Namespace, node.IP = "client", "shop", "192.0.2.7"
			node.Metadata = map[string]any{"INSTANCE_IPS": "192.0.2.7,2001:db8::7"}
			b.envoy(node)
			for _, to := range []service{bySix, byFour} {
				for _, host := range []string{"127.0.0.1", "::1"} {
					for _, name := range []string{to.host(), "192.0.2." + map[string]string{"six": "1", "four": "2"}[to.name], "[2001:db8::" + map[string]string{"six": "1", "four": "2"}[to.name] + "]"} {
						b.await(fmt.Sprintf("an answer to %s at %s", name, host), func(ctx context.Context) error {
							return b.answered(ctx, to, host, name)
						})
					}
				}
			}
		})
	}
}

// TestOneVersion: in a dual-stack mesh, a proxy without addresses of IPv6 neither listens nor connects there.
func TestOneVersion(t *testing.T) {
	t.Setenv("ISTIO_DUAL_STACK", "true")
	four := newService(t, "four", backend(t, "four"))
	b := newBed(t, "four.yaml", dualPod(four, "::1", "127.0.0.1"))
	b.envoy(testbed.Node{Name: "client", Namespace: "shop"})
	b.answers(four, "four", "/")
	if c, err := net.Dial("tcp", net.JoinHostPort("::1", fmt.Sprint(four.port))); err == nil {
		c.Close()
		t.Error("the proxy listens at the loopback address of IPv6")
	}
}

// answered sends a request to the port of a service at an address, with a name in its Host header, and reports whether the backend of the service answers.
func (b *bed) answered(ctx context.Context, s service, address, name string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(address, fmt.Sprint(s.port))+"/", nil)
	if err != nil {
		return err
	}
	r.Host = name
	answer, err := b.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || !strings.Contains(string(body), fmt.Sprintf("%q", s.versions[0].Name)) {
		return fmt.Errorf("status %d: %s", answer.StatusCode, body)
	}
	return nil
}
