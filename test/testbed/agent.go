package testbed

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
)

// AgentOptions say how an agent is run.
type AgentOptions struct {
	Binary string   // pilot-agent
	Envoy  string   // the Envoy it runs
	Args   []string // behind all others
	Env    []string // NAME=value, behind all others
	Dir    string   // where it runs; empty: where the test does
	Role   string   // of the proxy; empty: sidecar
	// Enter leads to where the agent runs, for instance into a network namespace, and Dial connects to its ports from here; nil for here.
	Enter func() error
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
}

// Agent is an Envoy that runs under pilot-agent. It answers whatever an Envoy can be asked; its log is the log of both.
type Agent struct {
	*Envoy
	AdminPort, StatusPort, HealthPort, MetricsPort int
	dir                                            string
	pages                                          *http.Client
}

// Dir is the folder with the bootstrap of its Envoy.
func (a *Agent) Dir() string { return a.dir }

// StartAgent runs an agent as node, with its files below dir, and waits for nothing.
func StartAgent(o AgentOptions, dir string, node Node) (*Agent, error) {
	ports, err := FreePorts(4)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		Envoy:     &Envoy{Node: node, admin: NewClient()},
		AdminPort: ports[0], StatusPort: ports[1], HealthPort: ports[2], MetricsPort: ports[3],
		dir: filepath.Join(dir, node.Name),
	}
	a.pages = http.DefaultClient
	if o.Dial != nil {
		a.admin.Transport = &http.Transport{DialContext: o.Dial}
		a.pages = &http.Client{Transport: a.admin.Transport}
	}
	a.admin.Transport = toAdmin{a.admin.Transport, a.AdminPort}
	metadata, err := json.Marshal(node.Metadata)
	if err != nil {
		return nil, err
	}
	ip := node.IP
	if ip == "" {
		ip = "127.1.0.1"
	}
	// What a pod's description says, said by the environment.
	var args []string
	if o.Dir != "" {
		args = append(args, "--chdir="+o.Dir)
	}
	args = append(args,
		"POD_NAME="+node.Name, "POD_NAMESPACE="+node.Namespace, "INSTANCE_IP="+ip, "ENVOY="+o.Envoy,
		"ISTIO_META_INTERCEPTION_MODE=NONE", fmt.Sprintf(`ISTIO_METAJSON_LABELS={"app":%q}`, node.Name),
		"ISTIO_DELTA_XDS="+strconv.FormatBool(!node.SotW), "PROXY_CONFIG=", "ISTIO_METAJSON_NODE="+string(metadata),
		"PROXY_XDS_DEBUG_VIA_AGENT=false") // many agents run on this host
	args = append(args, o.Env...)
	args = append(args, o.Binary, "proxy", cmp.Or(o.Role, "sidecar"), "--concurrency=1",
		"--discoveryAddress="+node.Discovery, "--configPath="+a.dir,
		"--proxyAdminPort="+strconv.Itoa(a.AdminPort), "--statusPort="+strconv.Itoa(a.StatusPort),
		"--envoyStatusPort="+strconv.Itoa(a.HealthPort), "--envoyPrometheusPort="+strconv.Itoa(a.MetricsPort))
	a.process, err = start(o.Enter, "agent-"+node.Name, dir, "/usr/bin/env", append(args, o.Args...)...)
	return a, err
}

// toAdmin sends every request to the admin interface, whatever host it names.
type toAdmin struct {
	http.RoundTripper
	port int
}

// RoundTrip implements http.RoundTripper.
func (t toAdmin) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = Loopback(t.port)
	return t.RoundTripper.RoundTrip(r)
}

// CloseIdleConnections is what http.Client looks for.
func (t toAdmin) CloseIdleConnections() {
	if c, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// AwaitReady waits until the agent reports to probes that its proxy is ready.
func (a *Agent) AwaitReady(ctx context.Context) error {
	return ready(ctx, a.process, "the agent of "+a.Node.Name+" to be ready", func(ctx context.Context) error {
		_, err := a.Status(ctx, "/healthz/ready")
		return err
	})
}

// Status reads a page of the agent's status server.
func (a *Agent) Status(ctx context.Context, path string) (string, error) {
	return get(ctx, a.pages, "http://"+Loopback(a.StatusPort)+path)
}

// PID is the process of the agent.
func (a *Agent) PID() int { return a.process.PID() }

// Signal sends a signal to the agent and does not wait.
func (a *Agent) Signal(s os.Signal) error { return a.process.Signal(s) }

// End sends a signal to the agent and waits for its end, for which it has a few seconds.
func (a *Agent) End(s syscall.Signal) {
	a.process.End(s, stopGrace)
	a.Stop()
}

// Wait waits for the agent's end and returns its exit code, -1 if a signal ended it.
func (a *Agent) Wait(ctx context.Context) (int, error) {
	select {
	case <-a.process.Done():
		return a.process.State().ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("waiting for the end of the agent of %s: %w; its log ends:\n%s", a.Node.Name, ctx.Err(), a.Log())
	}
}

// startedEnvoy is the agent's line about a process it has started.
var startedEnvoy = regexp.MustCompile(`msg="started Envoy" pid=(\d+)`)

// EnvoyPIDs are the numbers of the Envoys that the agent has started so far.
func (a *Agent) EnvoyPIDs() ([]int, error) {
	text, err := os.ReadFile(a.process.Log())
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, m := range startedEnvoy.FindAllSubmatch(text, -1) {
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			return nil, err
		}
		pids = append(pids, n)
	}
	return pids, nil
}

// WholeLog is everything that the agent and its Envoys have written.
func (a *Agent) WholeLog() (string, error) {
	text, err := os.ReadFile(a.process.Log())
	return string(text), err
}

// Exists reports whether there is a process of that number.
func Exists(pid int) bool { return syscall.Kill(pid, 0) == nil }
