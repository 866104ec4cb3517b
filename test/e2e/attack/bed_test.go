package attack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/netns"
	"github.com/pilotmesh/pilot/test/testbed"
)

// Addresses of the workload and of the attackers. Ports of the workload: HTTP/1.1, HTTP/2, detected, TCP, and two that no service names.
const (
	workload, attacker, attackerToo                               = "10.76.0.2", "10.76.0.1", "10.76.0.11"
	httpPort, http2Port, anyPort, tcpPort, unnamedPort, bytesPort = 8080, 8081, 8082, 9000, 8091, 9001
	// Ports of the attackers' namespace: the authorizers and the keys of issuers.
	askHTTP, askGRPC, keysPort = 8089, 8090, 8088
	service                    = "web.shop.svc.cluster.local"
)

// settings of the mesh. Each scene may add some.
const settings = `trustDomain: cluster.local
trustDomainAliases: [old.td]
extensionProviders:
- {name: asker, envoyExtAuthzHttp: {service: asker.front.svc.cluster.local, port: 8089, headersToUpstreamOnAllow: [x-asked], includeRequestHeadersInCheck: [x-refuse]}}
- {name: rpc-asker, envoyExtAuthzGrpc: {service: asker.front.svc.cluster.local, port: 8090}}
`

const services = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.svc.cluster.local]
  resolution: STATIC
  location: MESH_INTERNAL
  addresses: [240.0.0.10]
  ports:
  - {number: 8080, name: http, protocol: HTTP}
  - {number: 8081, name: http2, protocol: HTTP2}
  - {number: 8082, name: any}
  - {number: 9000, name: tcp, protocol: TCP}
  endpoints: [{address: 10.76.0.2, labels: {app: web}, serviceAccount: web}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: asker, namespace: front}
spec:
  hosts: [asker.front.svc.cluster.local]
  resolution: STATIC
  location: MESH_EXTERNAL
  addresses: [240.0.0.11]
  ports: [{number: 8089, name: http, protocol: HTTP}, {number: 8090, name: grpc, protocol: GRPC}]
  endpoints: [{address: 10.76.0.1}]
`

// bed is a mesh with one captured workload.
type bed struct {
	programs
	dir        string
	pod, world netns.Namespace
	plane      *testbed.Discovery
	agent      *testbed.Agent
	options    testbed.AgentOptions
	ports      []net.Listener
	ids        *identities
	tokens     *issuer
	keys       *keyServer

	generation int
	mesh       string // the settings that were written last
}

func newBed(ctx context.Context, dir string, p programs) (b *bed, err error) {
	b = &bed{programs: p, dir: dir, pod: netns.None, world: netns.None, keys: &keyServer{sets: map[string]string{}}}
	for _, step := range []func(context.Context) error{b.wire, b.serve, b.govern, b.run, b.capture} {
		if err := step(ctx); err != nil {
			return b, err
		}
	}
	if b.ids, err = newIdentities(b.plane.StateDir); err != nil {
		return b, err
	}
	b.tokens, err = newIssuer()
	return b, err
}

func (b *bed) close() {
	if b.agent != nil {
		b.agent.Stop()
	}
	if b.plane != nil {
		b.plane.Stop()
	}
	for _, l := range b.ports {
		l.Close()
	}
	b.pod.Close()
	b.world.Close()
}

// enter is the bed for a test. Tests use it one after the other.
func enter(t *testing.T) *bed {
	t.Helper()
	if skipped != "" {
		t.Skip(skipped)
	}
	return shared
}

// wire makes both namespaces.
func (b *bed) wire(context.Context) (err error) {
	if b.pod, err = netns.New(); err != nil {
		return err
	}
	if b.world, err = netns.New(); err != nil {
		return err
	}
	return errors.Join(
		b.pod.IP(fmt.Sprintf("link set lo up\nlink add eth0 type veth peer name w0 netns %s\nlink set eth0 up\naddr add %s/24 dev eth0\nroute add default via %s\n",
			b.world.Path(), workload, attacker)),
		b.world.IP(fmt.Sprintf("link set lo up\nlink set w0 up\naddr add %s/24 dev w0\naddr add %s/24 dev w0\n", attacker, attackerToo)))
}

// serve starts the application and whom policies ask.
func (b *bed) serve(context.Context) error {
	listen := func(n netns.Namespace, address string, port int, serve func(net.Conn)) error {
		l, err := n.Listen(fmt.Sprintf("%s:%d", address, port))
		if err != nil {
			return err
		}
		b.ports = append(b.ports, l)
		go accept(l, serve)
		return nil
	}
	var errs []error
	for _, port := range []int{httpPort, http2Port, anyPort, unnamedPort} {
		errs = append(errs, listen(b.pod, "0.0.0.0", port, answerHTTP))
	}
	for _, port := range []int{tcpPort, bytesPort} {
		errs = append(errs, listen(b.pod, "0.0.0.0", port, answerLines))
	}
	rpc, err := b.world.Listen(fmt.Sprintf("%s:%d", attacker, askGRPC))
	if err == nil {
		b.ports = append(b.ports, rpc)
		go serveAuthorizer(rpc)
	}
	return errors.Join(append(errs, err, listen(b.world, attacker, askHTTP, answerQuestions), listen(b.world, attacker, keysPort, b.keys.answer))...)
}

// dialPod connects to a port of the workload's namespace from inside.
func (b *bed) dialPod(ctx context.Context, _, address string) (net.Conn, error) {
	return b.pod.Dial(ctx, nil, address)
}

// govern starts the control plane.
func (b *bed) govern(ctx context.Context) (err error) {
	if b.plane, err = testbed.NewDiscovery(b.discovery, b.dir); err != nil {
		return err
	}
	b.plane.TLSOnly()
	b.plane.Enter = b.pod.Enter
	b.plane.Client = &http.Client{Transport: &http.Transport{DialContext: b.dialPod}}
	b.plane.Args = []string{"--meshConfig=" + filepath.Join(b.dir, "mesh.yaml")}
	b.plane.Env = []string{"PILOT_JWT_PUB_KEY_REFRESH_INTERVAL=1s"}
	b.mesh = settings
	if err := b.writeMesh(settings); err != nil {
		return err
	}
	if _, err := b.plane.Write("services.yaml", services); err != nil {
		return err
	}
	return b.plane.Start(ctx)
}

// writeMesh replaces the settings of the mesh.
func (b *bed) writeMesh(text string) error {
	file := filepath.Join(b.dir, "mesh.yaml")
	if err := os.WriteFile(file+".tmp", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

// run starts the agent of the workload and waits until it is ready.
func (b *bed) run(ctx context.Context) error {
	args, env, err := b.plane.Certified(ctx, b.control, b.dir, "shop", "web")
	if err != nil {
		return err
	}
	b.options = testbed.AgentOptions{
		Binary: b.programs.agent, Envoy: b.envoy, Enter: b.pod.Enter, Dial: b.dialPod, Env: append(env, "ISTIO_META_INTERCEPTION_MODE=REDIRECT", "CLOUD_PLATFORM=none"),
		Args: append(args, "--drainDuration=2s", "--parentShutdownDuration=5s", "--terminationDrainDuration=10ms"),
	}
	return b.startAgent(ctx)
}

// startAgent starts the agent, perhaps again, and waits until it is ready.
func (b *bed) startAgent(ctx context.Context) error {
	if err := b.launch(); err != nil {
		return err
	}
	return b.agent.AwaitReady(ctx)
}

// launch starts the agent and waits for nothing.
func (b *bed) launch() (err error) {
	b.agent, err = testbed.StartAgent(b.options, b.dir, testbed.Node{Name: "web", Namespace: "shop", IP: workload, Discovery: b.plane.Secure})
	return err
}

// capture redirects the connections of the workload. The proxy runs as root.
func (b *bed) capture(ctx context.Context) (err error) {
	except := fmt.Sprintf("%d,%d,%d", b.agent.StatusPort, b.agent.HealthPort, b.agent.MetricsPort)
	b.pod.Do(-1, -1, func() {
		cmd := exec.CommandContext(ctx, b.programs.agent, "istio-iptables", "-p", "15001", "-z", "15006", "-u", "0", "-g", "0", "-m", "REDIRECT", "-i", "*", "-b", "*", "-d", except)
		if out, failed := cmd.CombinedOutput(); failed != nil {
			err = fmt.Errorf("capturing the connections of the workload: %w: %s", failed, out)
		}
	})
	// The load makes thousands of connections: closed ones must not fill the connection table of the kernel.
	over := map[string]string{}
	for _, state := range []string{"close", "time_wait", "fin_wait", "close_wait", "last_ack", "syn_sent"} {
		over["netfilter/nf_conntrack_tcp_timeout_"+state] = "1"
	}
	return errors.Join(err, b.pod.Sysctl(over))
}

// problems is what the control plane says about its configuration, for errors.
func (b *bed) problems(ctx context.Context) string {
	list, err := b.plane.Problems(ctx)
	if err != nil {
		return err.Error()
	}
	return strings.Join(list, "\n")
}
