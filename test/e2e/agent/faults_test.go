package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestEnvoyIsKilled: another one takes its place, and the log says what the cause may be. With hot restarts it begins a family of its own,
// which can be replaced, too.
func TestEnvoyIsKilled(t *testing.T) {
	b := newBed(t)
	b.serve()
	a := b.restarts(options(), testbed.Node{})
	a.change()
	if err := syscall.Kill(b.envoyPID(a.Agent, 2), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a.says("it ran out of memory", 1)
	a.says("Envoy is ready", 2)
	b.answers()
	a.admin("/server_info", `"restart_epoch": 0`)
	a.change()
	a.admin("/server_info", `"restart_epoch": 1`)
	b.answers()
	a.bootstraps(1)
	if err := a.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.ends(a.Agent, 0)
	a.bootstraps(0)
	a.noMemory()
}

// noMemory wants no shared memory of the family whose base id is in the file.
func (r *restartable) noMemory() {
	r.bed.Helper()
	if _, err := os.Stat("/dev/shm/envoy_shared_memory_" + r.baseID() + "0"); !errors.Is(err, os.ErrNotExist) {
		r.Errorf("the shared memory of Envoy is left behind: %v", err)
	}
}

// TestEnvoyIsSuspended: probes report within a second that Envoy does not answer, and why. When it resumes, everything is as before.
func TestEnvoyIsSuspended(t *testing.T) {
	b := newBed(t)
	b.serve()
	a := b.ready(options(), testbed.Node{})
	pid := b.envoyPID(a, 1)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("Envoy, process %d, is suspended and answers nothing; continue it (kill -CONT %d)", pid, pid)
	b.await("probes to learn of it", func(ctx context.Context) error {
		if _, err := a.Status(ctx, "/healthz/ready"); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("they hear %w", err)
		}
		return nil
	})
	b.logs(a, `msg="Envoy was ready and is not any more" because="Envoy, process `+strconv.Itoa(pid)+", is suspended", 1)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := a.AwaitReady(b.Context()); err != nil {
		t.Fatal(err)
	}
	b.answers()
	b.logs(a, "Envoy is ready again", 1)
	if pids, err := a.EnvoyPIDs(); err != nil || len(pids) != 1 {
		t.Errorf("Envoys: %v, %v", pids, err)
	}
}

// TestAgentIsKilledInHotRestart: neither of two Envoys is left. The next agent removes the files that they have left behind.
func TestAgentIsKilledInHotRestart(t *testing.T) {
	b := newBed(t)
	b.serve()
	o := options()
	a := b.restarts(o, testbed.Node{})
	release := b.backend.holdBack()
	defer release()
	answer := b.under()
	b.post(a.Agent, "/restart")
	a.says("the new Envoy is ready", 1)
	if err := a.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.ends(a.Agent, -1)
	if code, err := answer(); err == nil {
		t.Errorf("nobody could answer, but somebody did: %d", code)
	}
	o.Args = append(o.Args, "--hotRestart", "--configPath="+a.Dir(), "--discoveryAddress=127.0.0.1:1")
	next := b.agent(o, testbed.Node{Name: "next"})
	b.envoyPID(next, 1)
	if err := next.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.ends(next, 0)
	a.noMemory()
}

// TestEndWithManyRequests: requests under way at SIGTERM are answered within the drain time, also by an Envoy that is being replaced.
func TestEndWithManyRequests(t *testing.T) {
	b := newBed(t)
	b.serve()
	o := options("--terminationDrainDuration=10s")
	a := b.restarts(o, testbed.Node{})
	release := b.backend.holdBack()
	var answers []func() (int, error)
	for range 20 {
		answers = append(answers, b.under())
	}
	b.post(a.Agent, "/restart")
	a.says("the new Envoy is ready", 1)
	for range 20 {
		answers = append(answers, b.under())
	}
	if err := a.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	a.says("draining; running requests may complete", 1)
	release()
	for _, answer := range answers {
		if code, err := answer(); code != http.StatusOK || err != nil {
			t.Errorf("a request under way: %d, %v", code, err)
		}
	}
	b.ends(a.Agent, 0)
}

// TestMinimumDrain: with EXIT_ON_ZERO_ACTIVE_CONNECTIONS and no connection, the end still takes MINIMUM_DRAIN_DURATION. Clients that have not learned
// yet that the workload ends may open one.
func TestMinimumDrain(t *testing.T) {
	b := newBed(t)
	b.serve()
	o := options()
	o.Env = []string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true", "MINIMUM_DRAIN_DURATION=3s"}
	a := b.ready(o, testbed.Node{})
	began := time.Now()
	b.post(a, "/quitquitquit")
	b.answers() // on a new connection, which ends here
	b.client.CloseIdleConnections()
	b.ends(a, 0)
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("it ended after %v", took)
	}
}

// TestDrainIsForInboundClients: after /drain, clients that call the workload are asked to connect elsewhere, and continue to be served. The
// workload's own calls are not concerned.
func TestDrainIsForInboundClients(t *testing.T) {
	b := newBed(t)
	inbound := strconv.Itoa(b.backend.port)
	if _, err := b.Write("self.yaml", `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: self, namespace: shop}
spec:
  hosts: [self.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: main, protocol: HTTP}]
  endpoints: [{address: 127.1.0.3, ports: {main: `+inbound+`}, labels: {app: app}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: app, namespace: shop}
spec:
  workloadSelector: {labels: {app: app}}
  egress: [{hosts: [./`+webHost+`]}]
`); err != nil {
		t.Fatal(err)
	}
	b.serve()
	a := b.ready(options(), testbed.Node{IP: "127.1.0.3"})
	closes := func(ctx context.Context, address, host string) (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
		if err != nil {
			return false, err
		}
		req.Host = host
		resp, err := b.client.Do(req)
		if err != nil {
			return false, err
		}
		if resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		return resp.Close, errors.Join(err, resp.Body.Close())
	}
	self := net.JoinHostPort("127.1.0.3", inbound)
	if closed, err := closes(t.Context(), self, "self"); closed || err != nil {
		t.Errorf("before: closed %v, %v", closed, err)
	}
	b.post(a, "/drain")
	for range 3 {
		b.await("clients to be asked to go", func(ctx context.Context) error {
			closed, err := closes(ctx, self, "self")
			if err == nil && !closed {
				err = errors.New("the connection stays open")
			}
			return err
		})
	}
	if closed, err := closes(t.Context(), testbed.Loopback(b.port), webHost); closed || err != nil {
		t.Errorf("a call of the workload: closed %v, %v", closed, err)
	}
}

// TestBootstrapCannotBeWritten: the agent says why, and what to do. In memory there may be space for a bootstrap, but not for sockets.
func TestBootstrapCannotBeWritten(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	t.Parallel()
	for options, want := range map[string]string{
		"size=4k,nr_inodes=1": "no space left on device; run the agent where its user can write to that directory",
		"ro":                  "read-only file system; set --configPath to a directory that this user can write to, with free space",
	} {
		t.Run(options, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			dir := t.TempDir()
			if out, code := mounted(ctx, options, dir); code != 1 || !strings.Contains(out, want) {
				t.Errorf("exit code %d; want %q in:\n%s", code, want, out)
			}
		})
	}
}

// TestNoSharedMemory: hot restarts need it, and the agent says so when it starts.
func TestNoSharedMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const want = "mount a tmpfs that this user can write to at /dev/shm (an emptyDir with medium Memory), or omit --hotRestart"
	if out, code := mounted(ctx, "ro", "/dev/shm", "--hotRestart", "--configPath="+t.TempDir()); code != 1 || !strings.Contains(out, want) {
		t.Errorf("exit code %d; want %q in:\n%s", code, want, out)
	}
}

// mounted runs the agent where a file system of its own is mounted at a directory.
func mounted(ctx context.Context, options, dir string, args ...string) (output string, code int) {
	cmd := exec.CommandContext(ctx, "unshare", append([]string{
		"--mount", "sh", "-c", `mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"`, "sh", options, dir,
		agentBinary, "proxy", "--discoveryAddress=127.0.0.1:1", "--configPath=" + dir,
	}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "INSTANCE_IP=127.1.0.1", "ENVOY=" + envoyBinary}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return err.Error(), -1
	}
	return string(out), cmd.ProcessState.ExitCode()
}
