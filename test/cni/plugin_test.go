package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/agent/capture"
	"github.com/pilotmesh/pilot/internal/agent/cni/node"
	"github.com/pilotmesh/pilot/internal/agent/cni/wire"
	"github.com/pilotmesh/pilot/test/netns"
	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

// pods are the pods that the agent knows.
const pods = `
- metadata: {name: web, namespace: shop, annotations: {sidecar.istio.io/status: "{}"}}
  spec:
    initContainers:
    - name: istio-validation
      args: [istio-iptables, -p, "15001", -z, "15006", -u, "1337", -m, REDIRECT, -i, "*", -x, "", -b, "*", -d, "15090,15021,15020", --log_output_level=default:info,
             --run-validation, --skip-rule-apply]
    containers: [{name: istio-proxy}, {name: app}]
- metadata: {name: other, namespace: shop}
  spec: {containers: [{name: app}]}
- metadata: {name: odd, namespace: shop, annotations: {sidecar.istio.io/status: "{}"}}
  spec:
    initContainers: [{name: istio-validation, args: [istio-iptables, --later]}]
    containers: [{name: istio-proxy}]
`

// stdin is the configuration that a runtime gives to the plugin.
const stdin = `{"cniVersion": "1.1.0", "name": "net", "type": "pilot-cni", "cni_agent_run_dir": %q, "exclude_namespaces": ["kube-system"],
"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/x"}], "ips": [{"interface": 0, "address": "10.10.0.2/24", "gateway": "10.10.0.1"}]}}`

// host is a node: the plugin's program, and maybe an agent.
type host struct {
	*testing.T
	program, dir string
	rules        *node.Rules
	pods         map[string]*corev1.Pod
}

func newHost(t *testing.T) *host {
	t.Helper()
	for _, program := range []string{"ip", "nft", "iptables"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs the program " + program)
		}
	}
	if n, err := netns.New(); err != nil {
		t.Skip("needs root and network namespaces: ", err)
	} else {
		n.Close()
	}
	h := &host{T: t, dir: t.TempDir(), pods: map[string]*corev1.Pod{}}
	h.program = filepath.Join(h.dir, "pilot-cni")
	var err error
	var list []*corev1.Pod
	h.must(yaml.UnmarshalStrict([]byte(pods), &list))
	for _, p := range list {
		h.pods[p.Namespace+"/"+p.Name] = p
	}
	h.rules, err = node.NewRules(slog.New(slog.DiscardHandler), "/proc/self/ns/net")
	h.must(err)
	return h
}

// build builds the plugin.
func (h *host) build() {
	h.Helper()
	root, err := repo.Root()
	h.must(err)
	_, err = testbed.Build(h.Context(), root, "pilot-cni", filepath.Dir(h.program))
	h.must(err)
}

func (h *host) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// agent runs an agent until the returned function is called.
func (h *host) agent() (stop func()) {
	h.Helper()
	l, err := node.Listen(filepath.Join(h.dir, "run"))
	h.must(err)
	s := &node.Server{Rules: h.rules, Log: slog.New(slog.DiscardHandler), Find: func(_ context.Context, r wire.Request) (*corev1.Pod, error) {
		if p := h.pods[r.Pod()]; p != nil {
			return p, nil
		}
		return nil, errors.New("the API server does not answer")
	}}
	ctx, cancel := context.WithCancel(h.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			h.Error(err)
		}
	}
}

// network makes the network of a pod, as the plugin before ours leaves it.
func (h *host) network(addresses ...string) netns.Namespace {
	h.Helper()
	n, err := netns.New()
	h.must(err)
	h.Cleanup(n.Close)
	n.Do(-1, -1, func() {
		commands := [][]string{{"link", "set", "lo", "up"}, {"link", "add", "eth0", "type", "veth", "peer", "name", "other0"}, {"link", "set", "eth0", "up"}}
		for _, a := range addresses {
			commands = append(commands, []string{"addr", "add", a, "dev", "eth0"})
		}
		for _, c := range commands {
			if out, err := exec.Command("ip", c...).CombinedOutput(); err != nil {
				h.Errorf("ip %s: %v\n%s", strings.Join(c, " "), err, out)
			}
		}
	})
	return n
}

// call runs the plugin for a pod, and returns its exit code and its output.
func (h *host) call(command, pod, netnsPath string) (code int, stdout, stderr string) {
	h.Helper()
	namespace, name, _ := strings.Cut(pod, "/")
	cmd := exec.CommandContext(h.Context(), h.program)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + command, "CNI_CONTAINERID=c1", "CNI_NETNS=" + netnsPath, "CNI_IFNAME=eth0", "CNI_PATH=" + h.dir,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=" + namespace + ";K8S_POD_NAME=" + name,
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(stdin, filepath.Join(h.dir, "run")))
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		h.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), said.String()
}

// captured reports whether the rules of the pod web are in place.
func (h *host) captured(n netns.Namespace) bool {
	h.Helper()
	f, err := os.Open(n.Path())
	h.must(err)
	defer f.Close()
	err = h.rules.Check(h.Context(), h.pods["shop/web"], f)
	if err != nil && !errors.Is(err, capture.ErrMissing) {
		h.Fatal(err)
	}
	return err == nil
}

// TestPlugin runs the plugin's program as a runtime does.
func TestPlugin(t *testing.T) {
	h := newHost(t)
	h.build()
	h.answers(t)
	h.failures(t)
}

// answers is the table of pods, with an agent and without.
func (h *host) answers(t *testing.T) {
	stop := h.agent()
	for _, c := range []struct {
		name, pod string
		captured  bool
		stderr    string
	}{
		{"a pod of the mesh", "shop/web", true, ""},
		{"a pod outside the mesh", "shop/other", false, ""},
		{"a pod that the agent cannot read", "shop/unknown", false, "pod shop/unknown: the host agent has not decided"},
		{"a pod of an excluded namespace", "kube-system/web", false, ""},
	} {
		n := h.network("10.10.0.2/24")
		for range 2 { // a runtime may ask again
			code, out, said := h.call("ADD", c.pod, n.Path())
			var result struct{ IPs []struct{ Address string } }
			if err := json.Unmarshal([]byte(out), &result); code != 0 || err != nil || len(result.IPs) != 1 || result.IPs[0].Address != "10.10.0.2/24" {
				t.Errorf("%s: exit code %d, %v, result %s", c.name, code, err, out)
			}
			if h.captured(n) != c.captured || !strings.Contains(said, c.stderr) || c.stderr == "" && said != "" {
				t.Errorf("%s: captured %v, %q", c.name, !c.captured, said)
			}
		}
		if code, out, _ := h.call("CHECK", c.pod, n.Path()); code != 0 {
			t.Errorf("%s: CHECK: exit code %d, %s", c.name, code, out)
		}
	}
	changed := h.network("10.10.0.2/24")
	if code, out, _ := h.call("CHECK", "shop/web", changed.Path()); code == 0 || !strings.Contains(out, "pod shop/web: its traffic is not captured: "+capture.ErrMissing.Error()) {
		t.Errorf("CHECK without rules: exit code %d, %s", code, out)
	}
	stop()
	// An outage of the agent fails no pod; a pod of the mesh waits in its validation container.
	n := h.network("10.10.0.2/24")
	if code, _, said := h.call("ADD", "shop/web", n.Path()); code != 0 || h.captured(n) || !strings.Contains(said, "pod shop/web: the host agent has not decided") {
		t.Errorf("without an agent: exit code %d, captured %v, %q", code, h.captured(n), said)
	}
	for _, command := range []string{"DEL", "DEL", "STATUS", "GC", "VERSION"} {
		if code, out, _ := h.call(command, "shop/web", ""); code != 0 {
			t.Errorf("%s without an agent: exit code %d, %s", command, code, out)
		}
	}
}

// failures: a capture that fails lets the pod's creation fail, and the message names pod, cause and remedy.
func (h *host) failures(t *testing.T) {
	defer h.agent()()
	for name, c := range map[string]struct {
		pod  string
		n    netns.Namespace
		want []string
	}{
		"no address":         {"shop/web", h.network(), []string{"pod shop/web: its traffic is not captured", "only loopback and link-local addresses", "log of the host agent"}},
		"arguments of later": {"shop/odd", h.network("10.10.0.2/24"), []string{"pod shop/odd", "istio-validation: unknown flag: --later", "inject the pod again"}},
	} {
		code, out, _ := h.call("ADD", c.pod, c.n.Path())
		var failed struct{ Msg string }
		if err := json.Unmarshal([]byte(out), &failed); err != nil || code == 0 {
			t.Errorf("%s: exit code %d, %v, %s", name, code, err, out)
		}
		for _, want := range c.want {
			if !strings.Contains(failed.Msg, want) {
				t.Errorf("%s: the message is %q, want %q", name, failed.Msg, want)
			}
		}
	}
}

// TestHost: the agent refuses the network namespace of the host, and files of other kinds.
func TestHost(t *testing.T) {
	h := newHost(t)
	for path, want := range map[string]string{"/proc/self/ns/net": "the network namespace belongs to the host or to the host agent", "/proc/self/ns/uts": "it is no network namespace", "/dev/null": "it is no network namespace"} {
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC, 0)
		h.must(err)
		if err := h.rules.Install(t.Context(), h.pods["shop/web"], f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
		h.must(f.Close())
	}
}
