package kubesource

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/testbed"
)

// machineGroup is what the machine of the test belongs to. Its application is probed once a second.
const machineGroup = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop}
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: vm}
spec:
  metadata: {labels: {app: shop}}
  template: {serviceAccount: shop}
  probe: {httpGet: {host: 127.0.0.1, port: %d, path: /healthy}, periodSeconds: 1, failureThreshold: 1}
`

// virtual is a virtual machine with an application, and a control plane as a process of its own.
type virtual struct {
	*place
	control     *testbed.Discovery
	agent       *testbed.Agent
	options     testbed.AgentOptions
	node        testbed.Node
	dir, tool   string
	port        int // of the application
	application *http.Server
}

// newVirtual starts a control plane.
func newVirtual(t *testing.T) *virtual {
	v := &virtual{place: on(t), dir: t.TempDir()}
	v.definitions()
	root, err := binaries.Root()
	v.must(err)
	programs := map[string]string{}
	for _, name := range []string{"pilot-discovery", "pilot-agent", "pilotctl"} {
		programs[name], err = testbed.Build(t.Context(), root, name, v.dir)
		v.must(err)
	}
	v.tool, v.options.Binary = programs["pilotctl"], programs["pilot-agent"]
	v.options.Envoy, _, err = envoy.Find(t.Context(), root)
	v.must(err)
	v.control, err = testbed.NewDiscovery(programs["pilot-discovery"], v.dir)
	v.must(err)
	v.control.TLSOnly()
	v.control.Env = []string{"POD_NAMESPACE=" + v.namespace, "POD_NAME=pilot", "PILOT_WORKLOAD_ENTRY_GRACE_PERIOD=1s", "ENABLE_LEADER_ELECTION=true"}
	v.control.Args = []string{"--configDir=", "--registries=Kubernetes", "--kubeconfig=" + v.c.Kubeconfig()}
	v.must(v.control.Start(t.Context()))
	t.Cleanup(v.control.Stop)
	ports, err := testbed.FreePorts(1)
	v.must(err)
	v.port = ports[0]
	return v
}

// configure writes the files of the machine with pilotctl.
func (v *virtual) configure() {
	v.Helper()
	v.kubectl("", "wait", "--for=create", "configmap/istio-ca-root-cert", "--timeout", patience.String())
	cmd := exec.CommandContext(v.Context(), v.tool, "x", "workload", "entry", "configure", "--kubeconfig", v.c.Kubeconfig(), "--name", "vm",
		"--namespace", v.namespace, "-i", v.namespace, "--autoregister", "--capture-dns=false", "--internalIP", "127.1.0.1",
		"--discoveryAddress", v.control.Secure, "-o", v.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		v.Fatalf("%v\n%s", err, out)
	}
}

// start starts the agent with the files, as the service of the package does.
func (v *virtual) start() {
	v.Helper()
	text, err := os.ReadFile(filepath.Join(v.dir, "cluster.env"))
	v.must(err)
	certs, roots := filepath.Join(v.dir, "certs"), filepath.Join(v.dir, "root-cert.pem")
	v.options.Env = []string{"OUTPUT_CERTS=" + certs, "PROV_CERT=" + certs, "XDS_ROOT_CA=" + roots, "CA_ROOT_CA=" + roots}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		v.options.Env = append(v.options.Env, name+"="+strings.Trim(value, "'"))
	}
	v.options.Args = []string{
		"--terminationDrainDuration=10ms", "--controlPlaneAuthPolicy=MUTUAL_TLS",
		"--meshConfig=" + filepath.Join(v.dir, "mesh.yaml"), "--tokenFile=" + filepath.Join(v.dir, "istio-token"),
	}
	v.node = testbed.Node{Name: "machine", Namespace: v.namespace, Discovery: v.control.Secure}
	v.agent, err = testbed.StartAgent(v.options, v.dir, v.node)
	v.must(err)
	a := v.agent
	v.Cleanup(func() {
		a.Stop()
		if v.Failed() {
			v.Logf("the log of the agent ends:\n%s\nthat of the control plane:\n%s", a.Log(), v.control.Log())
		}
	})
}

// serve starts the application.
func (v *virtual) serve() {
	v.Helper()
	l, err := (&net.ListenConfig{}).Listen(v.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(v.port)))
	v.must(err)
	server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	v.application = server
	go func() { _ = server.Serve(l) }() // ends by Close
	v.Cleanup(func() { _ = server.Close() })
}

// message is the message of the machine's condition.
func (v *virtual) message(name string) string {
	return v.entry(name, ".status.conditions[?(@.type=='Healthy')].message")
}

// TestMachine: a machine with the files that pilotctl writes registers itself, and its WorkloadEntry reports whether its application answers:
// when it dies, when it returns, and its state after it changed while the control plane was gone. After a reboot the machine needs no token.
func TestMachine(t *testing.T) {
	v := newVirtual(t)
	v.apply(fmt.Sprintf(machineGroup, v.port))
	v.configure()
	v.serve()
	v.start()
	const name = "vm-127.1.0.1"
	v.until("the entry", func() bool { return v.entry(name, ".spec.address") == "127.1.0.1" })
	entry := "workloadentry/" + name
	v.condition(entry, "Healthy")

	v.must(v.application.Close())
	died := time.Now()
	v.condition(entry, "Healthy=false")
	t.Logf("the condition has changed %v after the application died", time.Since(died))
	if got := v.message(name); !strings.Contains(got, "connection refused") {
		t.Errorf("the reason is %q", got)
	}
	v.serve()
	v.condition(entry, "Healthy")

	v.control.Kill()
	v.must(v.application.Close())
	v.until("the agent to notice", func() bool {
		page, err := v.agent.Status(context.Background(), "/metrics")
		return err == nil && strings.Contains(page, "pilot_agent_workload_healthy 0\n")
	})
	if got := v.message(name); got != "" {
		t.Errorf("without a control plane the condition says %q", got)
	}
	v.must(v.control.Start(t.Context()))
	v.condition(entry, "Healthy=false")
	v.serve()
	v.condition(entry, "Healthy")

	v.agent.Stop()
	v.must(os.Remove(filepath.Join(v.dir, "istio-token")))
	v.until("the entry to go", func() bool { return v.entry(name, ".metadata.name") == "" })
	v.start()
	v.until("another entry", func() bool { return v.entry(name, ".spec.address") == "127.1.0.1" })
	v.condition(entry, "Healthy")
	if text, err := v.agent.WholeLog(); err != nil || !strings.Contains(text, "the certificate of the workload is kept") {
		t.Errorf("the machine has not kept its certificate: %v", err)
	}
}
