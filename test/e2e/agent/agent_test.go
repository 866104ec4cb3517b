package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestEnvoyTakesEveryBootstrap, and has nothing to say about it.
func TestEnvoyTakesEveryBootstrap(t *testing.T) {
	for _, file := range goldens(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), envoyBinary, "--mode", "validate", "--disable-hot-restart", "-l", "warning", "-c", file).CombinedOutput()
			if err != nil || strings.Contains(string(out), "[warning]") || strings.Contains(string(out), "[error]") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestLife is a good one: not ready, ready, serving, asked to end with a request under way, gone.
func TestLife(t *testing.T) {
	for _, node := range []testbed.Node{{}, {SotW: true}} {
		t.Run(node.Variant(), func(t *testing.T) {
			b := newBed(t)
			a := b.agent(options("--terminationDrainDuration=60s"), node)
			b.await("the agent to say that it has no control plane", func(ctx context.Context) error {
				if _, err := a.Status(ctx, "/healthz/ready"); err == nil {
					b.Fatal("it is ready without a control plane")
				} else if !strings.Contains(err.Error(), "503") ||
					!strings.Contains(err.Error(), "has no connection to the control plane: does one serve at "+b.GRPC) {
					return err
				}
				return nil
			})
			b.serve()
			if err := a.AwaitReady(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.answers()
			b.pages(a)
			if err := a.Rejected(b.Context()); err != nil {
				b.Error(err)
			}

			release := b.backend.holdBack()
			answer := b.under()
			if err := a.Signal(syscall.SIGTERM); err != nil {
				b.Fatal(err)
			}
			b.await("the agent to tell probes that it is draining", func(ctx context.Context) error {
				if _, err := a.Status(ctx, "/healthz/ready"); err == nil || !strings.Contains(err.Error(), "draining") {
					return fmt.Errorf("it says %w", err)
				}
				return nil
			})
			release()
			if code, err := answer(); code != http.StatusOK || err != nil {
				b.Errorf("the request under way: %d, %v", code, err)
			}
		})
	}
}

// pages looks at what the agent and Envoy serve besides traffic.
func (b *bed) pages(a *testbed.Agent) {
	b.Helper()
	for _, c := range []struct {
		port       int
		path, want string
	}{
		{a.HealthPort, "/healthz/ready", "ready"},
		{a.MetricsPort, "/stats/prometheus", "envoy_server_live{} 1"},
		{a.StatusPort, "/stats/prometheus", "envoy_server_live{} 1"},
		{a.StatusPort, "/stats/prometheus", `envoy_cluster_upstream_rq_total{cluster_name="outbound|` + strconv.Itoa(b.port) + `||` + webHost + `"}`},
		{a.AdminPort, "/server_info", `"state": "LIVE"`},
	} {
		b.await(c.want+" on "+c.path, func(ctx context.Context) error {
			page, err := fetch(ctx, c.port, c.path)
			if err == nil && !strings.Contains(page, c.want) {
				err = errors.New("it is not there")
			}
			return err
		})
	}
}

// TestEndAfterDrainTime: no longer than the drain time, although a connection is open.
func TestEndAfterDrainTime(t *testing.T) {
	b := newBed(t)
	b.serve()
	a := b.ready(options(), testbed.Node{})
	release := b.backend.holdBack()
	defer release()
	answer := b.under()
	if err := a.Signal(os.Interrupt); err != nil {
		b.Fatal(err)
	}
	b.ends(a, 0)
	if code, err := answer(); err == nil && code == http.StatusOK {
		b.Error("the request was answered by nobody")
	}
}

// TestEndWithLastConnection: with EXIT_ON_ZERO_ACTIVE_CONNECTIONS it is the last connection that decides.
func TestEndWithLastConnection(t *testing.T) {
	b := newBed(t)
	b.serve()
	o := options()
	o.Env = []string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true", "MINIMUM_DRAIN_DURATION=1ms"}
	a := b.ready(o, testbed.Node{})
	release := b.backend.holdBack()
	answer := b.under()
	if err := a.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	// Twice the time between two looks at the connections, in which it must not end.
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
	defer cancel()
	if code, err := a.Wait(ctx); err == nil {
		b.Fatalf("it ended with %d while a request was under way", code)
	}
	release()
	if code, err := answer(); code != http.StatusOK || err != nil {
		b.Errorf("the request under way: %d, %v", code, err)
	}
	b.client.CloseIdleConnections()
	b.ends(a, 0)
}

// TestSecondSignal ends it at once, and says that this is not as it should be.
func TestSecondSignal(t *testing.T) {
	b := newBed(t)
	b.serve()
	a := b.ready(options("--terminationDrainDuration=10m"), testbed.Node{})
	b.await("the end", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond) // what comes at once is one request
		defer cancel()
		if err := a.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		_, err := a.Wait(ctx)
		return err
	})
	b.ends(a, 1)
	if !strings.Contains(a.Log(), "at a second request to stop") {
		b.Error("the log does not say why")
	}
}

// TestDuplicateSignal: what arrives at once is one order to end.
func TestDuplicateSignal(t *testing.T) {
	b := newBed(t)
	b.serve()
	a := b.ready(options("--terminationDrainDuration=1s"), testbed.Node{})
	if err := errors.Join(a.Signal(syscall.SIGTERM), a.Signal(syscall.SIGINT)); err != nil {
		b.Fatal(err)
	}
	b.ends(a, 0)
}

// TestCrash: Envoy comes back, with the same configuration.
func TestCrash(t *testing.T) {
	b := newBed(t)
	b.serve()
	a := b.ready(options(), testbed.Node{})
	b.answers()
	first := b.envoyPID(a, 1)
	if err := syscall.Kill(first, syscall.SIGSEGV); err != nil {
		b.Fatal(err)
	}
	second := b.envoyPID(a, 2)
	if second == first || testbed.Exists(first) {
		b.Errorf("Envoy %d is still there, or %d is it", first, second)
	}
	if err := a.AwaitReady(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.answers()
	if err := a.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	b.ends(a, 0)
	if log := a.Log(); !strings.Contains(log, "Envoy has crashed and will be started again") || !strings.Contains(log, "segmentation fault") {
		b.Error("the log does not tell")
	}
}

// envoyPID waits until the agent has started its nth Envoy.
func (b *bed) envoyPID(a *testbed.Agent, n int) (pid int) {
	b.Helper()
	b.await(fmt.Sprintf("Envoy no. %d", n), func(context.Context) error {
		pids, err := a.EnvoyPIDs()
		if err == nil && len(pids) < n {
			err = fmt.Errorf("there were %d", len(pids))
		}
		if err == nil {
			pid = pids[n-1]
		}
		return err
	})
	return pid
}

// TestTooManyCrashes end the agent, with an error.
func TestTooManyCrashes(t *testing.T) {
	b := newBed(t)
	o := options("--restarts=1")
	o.Env = []string{"ISTIO_BOOTSTRAP_OVERRIDE=" + write(t, "override.yaml", "static_resources: {clusters: [{name: twice}, {name: twice}]}")}
	a := b.agent(o, testbed.Node{})
	b.ends(a, 1)
	if log := a.Log(); !strings.Contains(log, "Envoy crashed 2 times in a row, the last time: exit status 1") {
		b.Error("the log does not say why")
	}
}

// TestOverride is laid over the bootstrap.
func TestOverride(t *testing.T) {
	b := newBed(t)
	b.serve()
	o := options()
	o.Env = []string{"ISTIO_BOOTSTRAP_OVERRIDE=" + write(t, "override.yaml", "static_resources: {clusters: [{name: extra}]}")}
	a := b.ready(o, testbed.Node{})
	page, err := a.Admin(b.Context(), "/clusters")
	if err != nil || !strings.Contains(page, "extra::") || !strings.Contains(page, "xds-grpc::") {
		b.Errorf("%v\n%s", err, page)
	}
}

// TestAgentIsKilled: nothing is left behind.
func TestAgentIsKilled(t *testing.T) {
	b := newBed(t)
	b.serve()
	a := b.ready(options(), testbed.Node{})
	if err := a.Signal(syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
	b.ends(a, -1)
}

// TestOrders: /drain sends clients elsewhere while everything keeps running; /quitquitquit ends the agent.
func TestOrders(t *testing.T) {
	b := newBed(t)
	b.serve()
	a := b.ready(options(), testbed.Node{})
	b.post(a, "/drain")
	b.await("probes to learn of it", func(ctx context.Context) error {
		if _, err := a.Status(ctx, "/healthz/ready"); err == nil || !strings.Contains(err.Error(), "draining") {
			return fmt.Errorf("they hear %w", err)
		}
		return nil
	})
	b.answers()
	b.post(a, "/quitquitquit")
	b.ends(a, 0)
}

func (b *bed) post(a *testbed.Agent, path string) {
	b.Helper()
	resp, err := http.Post("http://"+testbed.Loopback(a.StatusPort)+path, "", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b.Errorf("%s: %s", path, resp.Status)
	}
}

// TestEnvoyIsToldToQuit by another program: that is an end like any other.
func TestEnvoyIsToldToQuit(t *testing.T) {
	b := newBed(t)
	b.serve()
	a := b.ready(options(), testbed.Node{})
	if code, out := command(t, nil, "request", "POST", "quitquitquit", "--proxyAdminPort="+strconv.Itoa(a.AdminPort)); code != 0 || out != "OK\n" {
		b.Errorf("%d %s", code, out)
	}
	b.ends(a, 0)
}

// TestRestartOfControlPlane: the agent's Envoy does without for a while and comes back.
func TestRestartOfControlPlane(t *testing.T) {
	b := newBed(t)
	b.serve()
	a := b.ready(options(), testbed.Node{})
	b.answers()
	b.Discovery.Kill()
	b.await("the stream to break", func(ctx context.Context) error {
		if a.Connected(ctx) == nil {
			return errors.New("it is connected")
		}
		return nil
	})
	b.answers()
	b.serve()
	b.await("the stream to come back", a.Connected)
	b.answers()
	if err := a.Rejected(b.Context()); err != nil {
		b.Error(err)
	}
}

// TestWaitAndRequest are what containers and people use.
func TestWaitAndRequest(t *testing.T) {
	b := newBed(t)
	b.serve()
	a := b.agent(options(), testbed.Node{})
	if code, out := command(t, nil, "wait", "--periodMillis=20", "--url=http://"+testbed.Loopback(a.HealthPort)+"/healthz/ready"); code != 0 {
		b.Fatalf("%d %s", code, out)
	}
	port := "--proxyAdminPort=" + strconv.Itoa(a.AdminPort)
	if code, out := command(t, nil, "request", "get", "server_info", port); code != 0 || !strings.Contains(out, `"state": "LIVE"`) {
		b.Errorf("%d %s", code, out)
	}
	if code, out := command(t, nil, "request", "GET", "/no/such", port); code != 1 || !strings.Contains(out, "Envoy answered 404") {
		b.Errorf("%d %s", code, out)
	}
}

// TestCommandLine: errors are reported with their remedy, by exit codes too.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() }) // not before the subtests have run
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	const somewhere = "--discoveryAddress=127.0.0.1:1"
	noProgram := write(t, "envoy", "no program")
	if err := os.Chmod(noProgram, 0o755); err != nil {
		t.Fatal(err)
	}
	vacant, err := testbed.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	free := strconv.Itoa(vacant[0])
	oldEnvoy := write(t, "envoy", "#!/bin/sh\necho 'envoy  version: 0123abc/1.20.1/Clean/RELEASE/BoringSSL'\n")
	if err := os.Chmod(oldEnvoy, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env, args []string
		code      int
		want      string
	}{
		{nil, []string{"version"}, 0, "for Istio 1."},
		{nil, []string{"completion", "bash"}, 0, "bash completion"},
		{nil, []string{"--help"}, 0, "proxy"},
		{nil, []string{"proxy", "waypoint", somewhere}, 2, "write `proxy sidecar` or `proxy router`"},
		{nil, []string{"proxy", "sidecar", "extra", somewhere}, 2, "accepts at most 1 arg"},
		{nil, []string{"proxy", "--bogus", "waypoint", somewhere}, 2, "write `proxy sidecar` or `proxy router`"},
		{nil, []string{"proxy", somewhere, "--restarts=x"}, 2, `invalid argument "x" for "--restarts"`},
		{nil, []string{"proxy", somewhere, "--proxyAdminPort="}, 2, "Envoy's admin interface has no port"},
		{nil, []string{"proxy", somewhere, "--proxyAdminPort=15020"}, 2, "port 15020 is set for both"},
		{[]string{"PROXY_CONFIG=statusPort: x"}, []string{"proxy", somewhere}, 2, "PROXY_CONFIG: line 1: statusPort"},
		{nil, []string{"proxy", somewhere}, 1, "no envoy binary was found: there is none on PATH; install Envoy, or name its binary by --envoy=FILE or in $ENVOY"},
		{[]string{"ENVOY=/no/such"}, []string{"proxy", somewhere}, 1, "ENVOY is set to /no/such"},
		{[]string{"ENVOY=" + envoyBinary}, []string{"proxy", somewhere, "--configPath=/proc/no"}, 1, "set --configPath to a directory that this user can write to"},
		{[]string{"ENVOY=" + envoyBinary}, []string{"proxy", somewhere, "--proxyAdminPort=" + free, "--envoyStatusPort=0", "--envoyPrometheusPort=0", "--statusPort=" + port}, 1, "the status server has no port: listen tcp :" + port},
		{[]string{"ENVOY=" + noProgram}, []string{"proxy", somewhere, "--statusPort=0"}, 1, "exec format error"},
		{[]string{"ENVOY=" + oldEnvoy}, []string{"proxy", somewhere}, 1, "is Envoy 1.20.1, which is too old: 1.37 to 1.40 are supported"},
		{[]string{"ENVOY=" + envoyBinary}, []string{"proxy", somewhere, "--proxyAdminPort=" + port}, 1, "Envoy's admin interface has no port: listen tcp 127.0.0.1:" + port},
		{[]string{"ENVOY=" + envoyBinary}, []string{"proxy", somewhere, "--proxyAdminPort=" + free, "--envoyStatusPort=" + port}, 1, "or set another one with --envoyStatusPort"},
		{nil, []string{"request", "GET"}, 2, "accepts between 2 and 3 arg(s)"},
		{nil, []string{"request", "GET", "/", "--proxyAdminPort=1"}, 1, "is the agent running, and is 1 its --proxyAdminPort?"},
		{nil, []string{"wait", "--url=http://127.0.0.1:1", "--timeoutSeconds=1"}, 1, "the proxy was not ready within 1"},
		{nil, []string{"wait", "--timeoutSeconds=0"}, 2, "must be positive"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			code, out := command(t, c.env, c.args...)
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %d with %q:\n%s", code, c.code, c.want, out)
			}
		})
	}
}

// write makes a file for the time of the test.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// fetch reads a page of this host.
func fetch(ctx context.Context, port int, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+testbed.Loopback(port)+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var page strings.Builder
	if err := resp.Write(&page); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", errors.New(resp.Status)
	}
	return page.String(), nil
}
