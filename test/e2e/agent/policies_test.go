package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// own is a service of the workload itself, behind its inbound listener, and denied one that denies everything there.
const (
	own = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: self, namespace: shop}
spec:
  hosts: [self.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: main, protocol: HTTP}]
  endpoints: [{address: %s, ports: {main: %d}, labels: {app: app}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: app, namespace: shop}
spec:
  workloadSelector: {labels: {app: app}}
  egress: [{hosts: [./` + webHost + `]}]
`
	denied = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: closed, namespace: shop}
spec: {action: DENY, rules: [{}]}
`
)

// policed is a bed with an agent whose workload serves at an address.
type policed struct {
	*lonely
	address string
}

// guard makes a bed whose workload is reached through the inbound listener at an address.
func guard(t *testing.T, node testbed.Node, args ...string) *policed {
	g := &policed{lonely: &lonely{bed: newBed(t), options: options(args...), node: node, dir: t.TempDir()}}
	g.node.Name, g.node.Namespace = "app", "shop"
	g.address = net.JoinHostPort(g.node.IP, strconv.Itoa(g.backend.port))
	if _, err := g.Discovery.Write("self.yaml", fmt.Sprintf(own, g.node.IP, g.backend.port)); err != nil {
		t.Fatal(err)
	}
	g.serve()
	g.node.Discovery = g.GRPC
	g.start()
	g.probed("ready\n")
	return g
}

// calls returns the status of a request to the workload.
func (g *policed) calls(ctx context.Context) (int, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", g.address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return request(conn)
}

// request sends a request over a connection, and returns the status.
func request(conn net.Conn) (int, error) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: self\r\n\r\n"); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// replies waits until new connections to the workload are answered with a status.
func (g *policed) replies(want int) {
	g.Helper()
	g.await(fmt.Sprintf("status %d", want), func(ctx context.Context) error {
		code, err := g.calls(ctx)
		if err == nil && code != want {
			err = fmt.Errorf("status %d", code)
		}
		return err
	})
}

// closes applies the policy, and returns what pilotctl says when it is live.
func (g *policed) closes(args ...string) string {
	g.Helper()
	if _, err := g.Discovery.Write("closed.yaml", denied); err != nil {
		g.Fatal(err)
	}
	code, out := g.pilotctl(append([]string{"wait", "authorizationpolicy/closed", "-n", "shop", "--timeout", "1m"}, args...)...)
	if code != 0 {
		g.Fatalf("%d, %s", code, out)
	}
	return out
}

// kills ends the agent and its Envoy without a warning.
func (g *policed) kills() {
	g.Helper()
	pids, err := g.EnvoyPIDs()
	if err != nil || len(pids) == 0 {
		g.Fatalf("%v, %v", pids, err)
	}
	g.End(syscall.SIGKILL)
	if err := syscall.Kill(pids[len(pids)-1], syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		g.Fatal(err)
	}
	g.orphans(g.Agent)
}

// TestPolicySurvives: a policy that is in force stays in force when everything crashes at once, and the agent starts without a control plane.
func TestPolicySurvives(t *testing.T) {
	for i, node := range []testbed.Node{{}, {SotW: true}} {
		t.Run(node.Variant(), func(t *testing.T) {
			node.IP = fmt.Sprintf("127.1.1.%d", i+1)
			g := guard(t, node)
			g.replies(http.StatusOK)
			g.stored()
			g.closes()
			g.Discovery.Stop()
			g.kills()
			g.start()
			g.probed("ready, but stale: ")
			g.replies(http.StatusForbidden)
		})
	}
}

// TestOpenConnections: a connection that was opened before a policy came is not subject to it, and wait says so, until the drain time is over; with
// none it ends at once.
func TestOpenConnections(t *testing.T) {
	for name, c := range map[string]struct {
		ip, drain string
		goesOn    bool
	}{"drain": {"127.1.1.3", "10s", true}, "at once": {"127.1.1.4", "0s", false}} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, testbed.Node{IP: c.ip}, "--drainDuration="+c.drain)
			g.replies(http.StatusOK)
			conn, err := net.Dial("tcp", g.address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			if code, err := request(conn); code != http.StatusOK || err != nil {
				t.Fatalf("%d, %v", code, err)
			}
			out := g.closes()
			if says := strings.Contains(out, "app.shop, where connections that were opened earlier continue"); says != c.goesOn {
				t.Errorf("wait says %s", out)
			}
			if code, err := request(conn); c.goesOn && (code != http.StatusOK || err != nil) || !c.goesOn && err == nil {
				t.Errorf("the earlier connection: %d, %v", code, err)
			}
			g.replies(http.StatusForbidden)
			if out := g.closes("--for=drained"); strings.Contains(out, "opened earlier continue") {
				t.Errorf("at the end of the drain time wait says %s", out)
			}
		})
	}
}

// TestRefusedListener: a new Envoy refuses one listener of the last known good configuration, because another process has its port. It serves the rest,
// the control plane hears of it, and the listener comes back when the port is free.
func TestRefusedListener(t *testing.T) {
	for i, node := range []testbed.Node{{}, {SotW: true}} {
		t.Run(node.Variant(), func(t *testing.T) {
			node.IP = fmt.Sprintf("127.1.1.%d", i+5)
			g := guard(t, node)
			pids, err := g.EnvoyPIDs()
			if err != nil || len(pids) != 1 {
				t.Fatalf("%v, %v", pids, err)
			}
			if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			var other net.Listener
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for late := time.After(patience); other == nil; {
				select {
				case <-tick.C:
					other, _ = net.Listen("tcp", testbed.Loopback(g.port)) // Envoy has not ended yet
				case <-late:
					t.Fatal("the port does not become free")
				}
			}
			t.Cleanup(func() { _ = other.Close() })
			g.await("a Problem", func(context.Context) error {
				if _, out := g.pilotctl("problems"); !strings.Contains(out, "Address already in use") {
					return errors.New(out)
				}
				return nil
			})
			g.probed("ready\n")
			g.replies(http.StatusOK)
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			g.answers()
		})
	}
}
