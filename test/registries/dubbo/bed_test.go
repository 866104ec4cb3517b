// Package dubbo tests calls of real providers and consumers of Apache Dubbo (test/dubbo), which a real ZooKeeper has registered, through a
// real Envoy under pilot-agent.
//
// The consumer has a network namespace of its own, with pilot-discovery, pilot-agent, Envoy, and captured connections. ZooKeeper and the
// providers are in another namespace. The bed belongs to TestMain, and starts no goroutines.
package dubbo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/kit/process"
	"github.com/pilotmesh/pilot/test/netns"
	"github.com/pilotmesh/pilot/test/registries/servers"
	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

const (
	consumer, world = "10.78.0.2", "10.78.0.1"
	// application is the user of the consumer. Only its connections are captured: the proxy runs as root.
	application = 4242
	dubboPort   = 20880
	triplePort  = 50051
	// patience is how long anything may take that is sure to happen.
	patience = time.Minute
)

// bed is a mesh with one captured consumer.
type bed struct {
	dir, root, program     string
	agentBinary, discovery string
	pod, world             netns.Namespace
	zookeeper              *servers.Server
	plane                  *testbed.Discovery
	agent                  *testbed.Agent
}

// shared is the bed of all tests, or skipped is why there is none.
var (
	shared  *bed
	skipped string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	if testing.Short() {
		skipped = "with -short: it builds the programs of test/dubbo, which takes a minute of processor time at first, and waits for them"
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "dubbo-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "dubbo:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	shared = &bed{dir: dir, pod: netns.None, world: netns.None}
	defer shared.close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	err = shared.open(ctx)
	if missing, ok := errors.AsType[*servers.Missing](err); ok {
		skipped = missing.Error()
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "dubbo:", err)
		return 1
	}
	return m.Run()
}

// enter is the bed for a test. Tests use it one after the other.
func enter(t *testing.T) *bed {
	t.Helper()
	if skipped != "" {
		t.Skip(skipped)
	}
	return shared
}

func (b *bed) open(ctx context.Context) (err error) {
	if b.root, err = repo.Root(); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{b.wire, b.register, b.build, b.govern, b.proxy} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) close() {
	if b.agent != nil {
		b.agent.Stop()
	}
	if b.plane != nil {
		b.plane.Stop()
	}
	if b.zookeeper != nil {
		b.zookeeper.Kill()
	}
	b.pod.Close()
	b.world.Close()
}

// wire makes both namespaces. Providers have addresses from 10.78.0.11 on.
func (b *bed) wire(context.Context) (err error) {
	if os.Geteuid() != 0 {
		return &servers.Missing{What: "root", Remedy: "run the tests as root, for namespaces and the capture of connections"}
	}
	for program, in := range map[string]string{"ip": "iproute2", "iptables": "iptables"} {
		if _, err := exec.LookPath(program); err != nil {
			return &servers.Missing{What: program, Remedy: "install the package " + in}
		}
	}
	if b.pod, err = netns.New(); err != nil {
		return &servers.Missing{What: "network namespace", Remedy: "the kernel says " + err.Error()}
	}
	if b.world, err = netns.New(); err != nil {
		return err
	}
	var providers strings.Builder
	for i := range 6 {
		fmt.Fprintf(&providers, "addr add 10.78.0.%d/24 dev w0\n", 11+i)
	}
	return errors.Join(os.Chmod(b.dir, 0o755),
		b.pod.IP(fmt.Sprintf("link set lo up\nlink add eth0 type veth peer name w0 netns %s\nlink set eth0 up\naddr add %s/24 dev eth0\nroute add default via %s\n",
			b.world.Path(), consumer, world)),
		b.world.IP(fmt.Sprintf("link set lo up\nlink set w0 up\naddr add %s/24 dev w0\n", world)+providers.String()))
}

// register starts ZooKeeper.
func (b *bed) register(ctx context.Context) (err error) {
	dial := func(ctx context.Context, _, address string) (net.Conn, error) { return b.world.Dial(ctx, nil, address) }
	if b.zookeeper, err = servers.NewZooKeeperIn(b.dir, servers.Place{Host: world, Enter: b.world.Enter, Dial: dial}); err != nil {
		return err
	}
	return b.zookeeper.Start(ctx)
}

// build finds or builds the programs.
func (b *bed) build(ctx context.Context) (err error) {
	if b.program = os.Getenv("DUBBO"); b.program == "" {
		b.program = filepath.Join(b.dir, "dubbo")
		cmd := exec.CommandContext(ctx, "go", "build", "-o", b.program, ".")
		cmd.Dir = filepath.Join(b.root, "test", "dubbo")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building test/dubbo: %w\n%s", err, out)
		}
	}
	for name, into := range map[string]*string{"PILOT_AGENT": &b.agentBinary, "PILOT_DISCOVERY": &b.discovery} {
		if *into = os.Getenv(name); *into != "" {
			continue
		}
		if *into, err = testbed.Build(ctx, b.root, strings.ReplaceAll(strings.ToLower(name), "_", "-"), b.dir); err != nil {
			return err
		}
	}
	return nil
}

// dialPod connects to a port of the consumer's namespace from inside.
func (b *bed) dialPod(ctx context.Context, _, address string) (net.Conn, error) {
	return b.pod.Dial(ctx, nil, address)
}

// govern starts the control plane, which reads ZooKeeper.
func (b *bed) govern(ctx context.Context) (err error) {
	if b.plane, err = testbed.NewDiscovery(b.discovery, b.dir); err != nil {
		return err
	}
	file := filepath.Join(b.dir, "registries.yaml")
	text := fmt.Sprintf("registries: [{type: zookeeper, namespace: shop, addresses: [%q]}]\n", b.zookeeper.Address())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	b.plane.Enter = b.pod.Enter
	b.plane.Client = &http.Client{Transport: &http.Transport{DialContext: b.dialPod}}
	b.plane.Args = []string{"--registriesConfig=" + file}
	return b.plane.Start(ctx)
}

// proxy starts the agent with its Envoy, and captures the connections and DNS queries of the consumer.
func (b *bed) proxy(ctx context.Context) (err error) {
	binary, _, err := envoy.Find(ctx, b.root)
	if err != nil {
		return err
	}
	b.agent, err = testbed.StartAgent(testbed.AgentOptions{
		Binary: b.agentBinary, Envoy: binary, Enter: b.pod.Enter, Dial: b.dialPod,
		Env: []string{"ISTIO_META_INTERCEPTION_MODE=REDIRECT", "ISTIO_META_DNS_CAPTURE=true", "CLOUD_PLATFORM=none"},
	}, b.dir, testbed.Node{Name: "consumer", Namespace: "shop", IP: consumer, Discovery: b.plane.GRPC})
	if err != nil {
		return err
	}
	if err := b.agent.AwaitReady(ctx); err != nil {
		return err
	}
	b.pod.Do(-1, -1, func() {
		cmd := exec.CommandContext(ctx, b.agentBinary, "istio-iptables", "-p", "15001", "-z", "15006", "-u", "0", "-g", "0", "-m", "REDIRECT", "-i", "*", "-b", "",
			"--redirect-dns", "--capture-all-dns")
		if out, failed := cmd.CombinedOutput(); failed != nil {
			err = fmt.Errorf("capturing the connections of the consumer: %w: %s", failed, out)
		}
	})
	return err
}

// provide starts a provider at 10.78.0.HOST, which ends with the test or by the returned function.
func (b *bed) provide(t *testing.T, name, protocol string, host int, args ...string) (end func()) {
	t.Helper()
	port := dubboPort
	if protocol == "tri" {
		port = triplePort
	}
	args = append([]string{"provide", "-zookeeper=" + b.zookeeper.Address(), "-protocol=" + protocol, fmt.Sprintf("-ip=10.78.0.%d", host),
		fmt.Sprintf("-port=%d", port), "-name=" + name, "-param=stage=" + name}, args...)
	cmd := exec.Command(b.program, args...)
	cmd.Dir = b.dir
	p, err := process.StartInside("provider-"+name, b.log(name), cmd, b.world.Enter)
	if err != nil {
		t.Fatal(err)
	}
	end = func() { p.End(syscall.SIGTERM, 5*time.Second) }
	t.Cleanup(func() {
		end()
		if t.Failed() {
			t.Logf("the log of the provider %s ends:\n%s", name, p.Tail())
		}
	})
	return end
}

// log is the file with the output of a provider.
func (b *bed) log(name string) string { return filepath.Join(b.dir, "provider-"+name+".log") }

// consume calls providers as the application, and returns how often each line was the result.
func (b *bed) consume(t *testing.T, args ...string) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.program, append([]string{"consume"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: application, Gid: application}}
	cmd.Dir = "/"
	p, err := process.StartInside("consumer", filepath.Join(b.dir, "consumer.log"), cmd, b.pod.Enter)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Kill()
	}
	text, err := os.ReadFile(p.Log())
	if err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(p.Log())
	got := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "error ") {
			got[line]++
		}
	}
	if len(got) == 0 {
		t.Logf("the consumer printed no results:\n%s", text)
	}
	return got
}

// until calls until the results are as wanted.
func (b *bed) until(t *testing.T, what string, is func(map[string]int) bool, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got map[string]int
	err := testbed.Until(ctx, what, func(context.Context) error {
		if got = b.consume(t, args...); !is(got) {
			return fmt.Errorf("got %v", got)
		}
		return nil
	})
	if err != nil {
		problems, _ := b.plane.Problems(t.Context())
		t.Fatalf("%v\nproblems:\n%s", err, strings.Join(problems, "\n"))
	}
}

// write puts a file into the configuration, and removes it after the test.
func (b *bed) write(t *testing.T, text string) {
	t.Helper()
	const name = "routes.yaml"
	if _, err := b.plane.Write(name, text); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.plane.Remove(name) })
}

// only returns whether all results are the line.
func only(line string) func(map[string]int) bool {
	return func(got map[string]int) bool { return len(got) == 1 && got[line] > 0 }
}

// node registers the URL of a provider until the test ends.
func (b *bed) node(t *testing.T, text string) {
	t.Helper()
	c, err := servers.NewSession(b.zookeeper, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.Put("/dubbo/com.acme.Greeter/providers/"+url.QueryEscape(text), "", zk.FlagEphemeral); err != nil {
		t.Fatal(err)
	}
}
