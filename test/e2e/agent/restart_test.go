package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/testbed"
)

// restartable are the options of an agent with hot restarts whose settings are in a file. The old Envoy has two seconds to ask its clients to
// connect again, and a third one to exit.
type restartable struct {
	*bed
	*testbed.Agent
	settings string // the file
	changes  int
}

// restarts starts an agent with hot restarts, and waits until it is ready.
func (b *bed) restarts(o testbed.AgentOptions, node testbed.Node) *restartable {
	b.Helper()
	r := &restartable{bed: b, settings: filepath.Join(b.TempDir(), "mesh.yaml")}
	r.write()
	o.Args = append(o.Args, "--hotRestart", "--meshConfig="+r.settings, "--drainDuration=2s", "--parentShutdownDuration=3s")
	r.Agent = b.ready(o, node)
	b.Cleanup(func() { r.End(syscall.SIGTERM) }) // an agent that is killed leaves shared memory behind
	return r
}

// write writes the settings, which differ from those before.
func (r *restartable) write() {
	r.bed.Helper()
	text := fmt.Sprintf("defaultConfig: {runtimeValues: {changes: %q}}\n", fmt.Sprint(r.changes))
	if err := os.WriteFile(r.settings, []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
}

// change changes the settings, and waits until the old Envoy has ended.
func (r *restartable) change() {
	r.bed.Helper()
	done := r.count(r.Agent, completed)
	r.changes++
	r.write()
	r.complete(done + 1)
}

// completed is what the log says when the old Envoy has ended.
const completed = "the hot restart is complete"

// complete waits until n hot restarts are complete.
func (r *restartable) complete(n int) {
	r.bed.Helper()
	r.says(completed, n)
}

// says waits until the log says something n times.
func (r *restartable) says(what string, n int) {
	r.bed.Helper()
	r.logs(r.Agent, what, n)
}

// logs waits until the log of an agent says something n times.
func (b *bed) logs(a *testbed.Agent, what string, n int) {
	b.Helper()
	b.await(fmt.Sprintf("%q in the log, %d times", what, n), func(context.Context) error {
		if found := b.count(a, what); found < n {
			return fmt.Errorf("it is there %d times", found)
		}
		return nil
	})
}

// count returns how often the log of an agent says something.
func (b *bed) count(a *testbed.Agent, what string) int {
	b.Helper()
	text, err := a.WholeLog()
	if err != nil {
		b.Fatal(err)
	}
	return strings.Count(text, what)
}

// admin wants something on a page of Envoy.
func (r *restartable) admin(path, want string) {
	r.bed.Helper()
	page, err := r.Admin(r.Context(), path)
	if err != nil || !strings.Contains(page, want) {
		r.Errorf("%s: %v; want %s in:\n%s", path, err, want, page)
	}
}

// TestHotRestartUnderLoad: two sidecars are replaced again and again because of changed settings, under 500 requests per second with mutual
// TLS between them. No request fails, and no readiness probe. HOT_RESTART_FOR is how long it takes.
func TestHotRestartUnderLoad(t *testing.T) {
	length, err := time.ParseDuration(cmp.Or(os.Getenv("HOT_RESTART_FOR"), "10s"))
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t)
	b.TLSOnly()
	if _, err := b.Write("web.yaml", fmt.Sprintf(rotated, webHost, b.port, b.backend.port)); err != nil {
		t.Fatal(err)
	}
	b.serve()
	web := b.restarts(b.certified("web"), testbed.Node{Name: "web", IP: "127.1.0.2"})
	app := b.restarts(b.certified("app"), testbed.Node{})
	b.answers()
	load := b.load()
	probes := testbed.StartAsking(t.Context(), 2, 20, func(ctx context.Context, _ *http.Client) (string, error) {
		_, err := fetch(ctx, app.HealthPort, "/healthz/ready")
		return "app", err
	})
	began := time.Now()
	for time.Since(began) < length {
		web.change()
		app.change()
	}
	took := time.Since(began)
	n := b.noneFailed(load, took)
	if tally := probes.Stop(); tally.Failures > 0 || tally.Total() == 0 {
		t.Errorf("%d of %d probes failed, the first at %v", tally.Failures, tally.Total(), tally.First)
	}
	t.Logf("%d requests in %v; hot restarts: %d of web, %d of app", n, took.Round(time.Second), web.changes, app.changes)
	if web.baseID() == app.baseID() {
		t.Error("both agents have one base id")
	}
	for _, r := range []*restartable{web, app} {
		r.admin("/server_info", fmt.Sprintf(`"restart_epoch": %d`, r.changes))
		r.admin("/runtime", fmt.Sprint(r.changes))
		r.bootstraps(1)
	}
}

// baseID returns the base id of its Envoys.
func (r *restartable) baseID() string {
	r.bed.Helper()
	id, err := os.ReadFile(filepath.Join(r.Dir(), "base-id"))
	if err != nil {
		r.Fatal(err)
	}
	return string(id)
}

// load begins to ask for web, 500 times per second.
func (b *bed) load() *testbed.Load {
	return testbed.StartAsking(b.Context(), 10, 50, func(ctx context.Context, _ *http.Client) (string, error) {
		code, err := b.get(ctx)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d", code)
		}
		return "web", err
	})
}

// noneFailed ends a load, and wants that no request has failed and that there were about as many as there should have been.
func (b *bed) noneFailed(load *testbed.Load, took time.Duration) int {
	b.Helper()
	tally := load.Stop()
	if tally.Failures > 0 || tally.Total() < int(took/time.Second)*400 {
		b.Errorf("%d of %d requests failed, the first at %v", tally.Failures, tally.Total(), tally.First)
	}
	return tally.Total()
}

// bootstraps wants that many files with bootstraps.
func (r *restartable) bootstraps(want int) {
	r.bed.Helper()
	r.await(fmt.Sprintf("%d bootstraps", want), func(context.Context) error {
		found, err := filepath.Glob(filepath.Join(r.Dir(), "*.json"))
		if err != nil {
			return err
		}
		if len(found) != want {
			return errors.New(strings.Join(found, " "))
		}
		return nil
	})
}

// TestRequestedRestart: SIGHUP, /restart and changed settings start a new Envoy only if that is needed.
func TestRequestedRestart(t *testing.T) {
	b := newBed(t)
	b.serve()
	a := b.restarts(options(), testbed.Node{})
	a.write() // the same settings
	if err := a.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	a.says("received a signal to read the settings again", 1)
	b.post(a.Agent, "/restart")
	a.complete(1)
	a.change()
	if pids, err := a.EnvoyPIDs(); err != nil || len(pids) != 3 {
		t.Errorf("Envoys: %v, %v; equal settings must not start one", pids, err)
	}
	for _, c := range []struct{ text, says string }{
		{"defaultConfig: {drainDuration: soon}", "the settings have changed and are wrong; Envoy continues as it is"},
		{"defaultConfig: {binaryPath: /no/such, runtimeValues: {changes: new}}", "binaryPath has changed, which takes effect when the agent is started again"},
	} {
		if err := os.WriteFile(a.settings, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		a.says(c.says, 1)
		b.answers()
	}
	a.complete(3)
	a.admin("/runtime", "new")
	a.admin("/server_info", `"restart_epoch": 3`)
}

// TestNoHotRestart: /restart without --hotRestart is refused with the flag to set.
func TestNoHotRestart(t *testing.T) {
	b := newBed(t)
	b.serve()
	a := b.ready(options(), testbed.Node{})
	resp, err := http.Post("http://"+testbed.Loopback(a.StatusPort)+"/restart", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusConflict || !strings.Contains(string(text), "--hotRestart") {
		t.Errorf("%s %s %v", resp.Status, text, err)
	}
}

// overridden starts an agent with a file that overrides its bootstrap.
func (b *bed) overridden(node testbed.Node) (*restartable, func(text string)) {
	b.Helper()
	file := write(b.T, "override.yaml", "{}")
	o := options()
	o.Env = []string{"ISTIO_BOOTSTRAP_OVERRIDE=" + file}
	return b.restarts(o, node), func(text string) {
		b.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
}

// taken is a listener of Envoy on a port that is taken, so that Envoy's validation accepts it and Envoy does not start.
func taken(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return fmt.Sprintf(`static_resources: {listeners: [{name: taken, address: {socket_address: {address: 127.0.0.1, port_value: %d}}, filter_chains: [{filters: []}]}]}`,
		l.Addr().(*net.TCPAddr).Port)
}

// TestWrongBootstrapUnderLoad: one that Envoy's validation refuses costs nothing. With one that makes Envoy fail at its start, there are three
// attempts, and then another Envoy with the last good bootstrap takes over. No request fails all the while. Another change is tried again.
func TestWrongBootstrapUnderLoad(t *testing.T) {
	b := newBed(t)
	b.serve()
	a, override := b.overridden(testbed.Node{})
	b.answers()
	load, began := b.load(), time.Now()
	override("static_resources: {clusters: [{name: twice}, {name: twice}]}")
	a.says("Envoy refuses the bootstrap that follows from them; Envoy continues as it is", 1)
	a.says("twice", 1)
	if pids, err := a.EnvoyPIDs(); err != nil || len(pids) != 1 {
		t.Errorf("Envoys: %v, %v", pids, err)
	}

	override(taken(t))
	a.says("the old one still serves", 3)
	a.says("the last good one is used until it changes again", 1)
	a.complete(1)
	const remark = "ready, but with the last good bootstrap: Envoy fails with the changed one: exit status 1"
	if page, err := a.Status(t.Context(), "/healthz/ready"); err != nil || !strings.Contains(page, remark) {
		t.Errorf("%s, %v", page, err)
	}
	a.metric("pilot_agent_bootstrap_refused 1")
	a.admin("/server_info", `"restart_epoch": 1`)

	override("static_resources: {clusters: [{name: extra}]}")
	a.complete(2)
	a.admin("/clusters", "extra::")
	a.metric("pilot_agent_bootstrap_refused 0")
	b.noneFailed(load, time.Since(began))
	a.bootstraps(1)
}

// metric wants a line in the metrics of the agent.
func (r *restartable) metric(line string) {
	r.bed.Helper()
	if page, err := r.Status(r.Context(), "/stats/prometheus"); err != nil || !strings.Contains(page, line+"\n") {
		r.Errorf("%s is not in the metrics: %v", line, err)
	}
}

// TestLastGoodBootstrapOfEarlierAgent: an agent whose Envoy fails with the present bootstrap uses the one that an earlier agent has left.
func TestLastGoodBootstrapOfEarlierAgent(t *testing.T) {
	b := newBed(t)
	b.serve()
	first := b.ready(options(), testbed.Node{})
	if err := first.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.ends(first, 0)
	o := options("--configPath="+first.Dir(), fmt.Sprint("--proxyAdminPort=", first.AdminPort), fmt.Sprint("--statusPort=", first.StatusPort),
		fmt.Sprint("--envoyStatusPort=", first.HealthPort), fmt.Sprint("--envoyPrometheusPort=", first.MetricsPort))
	o.Env = []string{"ISTIO_BOOTSTRAP_OVERRIDE=" + write(t, "override.yaml", taken(t))}
	next := b.agent(o, testbed.Node{})
	b.await("the last good bootstrap", func(ctx context.Context) error {
		page, err := first.Status(ctx, "/healthz/ready")
		if err == nil && !strings.Contains(page, "with the last good bootstrap") {
			err = errors.New(page)
		}
		return err
	})
	b.answers()
	if pids, err := next.EnvoyPIDs(); err != nil || len(pids) != 4 {
		t.Errorf("Envoys: %v, %v; want three attempts, and the one that serves", pids, err)
	}
}

// TestHotRestartWithoutControlPlane: the new Envoy gets the last known good configuration from the relay, which serves both.
func TestHotRestartWithoutControlPlane(t *testing.T) {
	for _, node := range []testbed.Node{{}, {SotW: true}} {
		t.Run(node.Variant(), func(t *testing.T) {
			b := newBed(t)
			b.serve()
			a := b.restarts(options(), node)
			load, began := b.load(), time.Now()
			a.change() // after it, the state kept is acknowledged by both Envoys
			b.Discovery.Kill()
			a.change()
			b.noneFailed(load, time.Since(began))
			b.serve()
			b.await("the stream to come back", a.Connected)
			a.change()
			b.answers()
			if err := a.Rejected(b.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNamedFile: Envoy reads a file that its bootstrap names only when it starts, so a change of the file leads to a hot restart.
func TestNamedFile(t *testing.T) {
	b := newBed(t)
	b.serve()
	a, override := b.overridden(testbed.Node{})
	file := write(t, "roots.pem", b.roots("first"))
	override(fmt.Sprintf(`static_resources: {clusters: [{name: collector, transport_socket: {name: tls, typed_config: {
  "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext,
  common_tls_context: {validation_context: {trusted_ca: {filename: %q}}}}}}]}`, file))
	a.complete(1)
	a.admin("/certs", file)
	if err := os.WriteFile(file, []byte(b.roots("second")), 0o600); err != nil {
		t.Fatal(err)
	}
	a.complete(2)
	a.admin("/server_info", `"restart_epoch": 2`)
}

// roots returns the certificate of a new authority.
func (b *bed) roots(name string) string {
	b.Helper()
	authority, err := certs.NewAuthority(name)
	if err != nil {
		b.Fatal(err)
	}
	return authority.Pair().Cert
}
