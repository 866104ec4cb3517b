package machines

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

const machineGroup = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: vm, namespace: shop}
spec: {template: {serviceAccount: web}}
`

// configure runs pilotctl with arguments, in a folder that has a WorkloadGroup.
func configure(t *testing.T, args ...string) (string, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("KUBECONFIG", "nowhere")
	if err := os.WriteFile("group.yaml", []byte(machineGroup), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := &cobra.Command{Use: "pilotctl", SilenceUsage: true, SilenceErrors: true}
	c.AddCommand(WorkloadCommand(os.LookupEnv))
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&out)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// TestConfigureOffline: outside Kubernetes the state folder has all that a machine needs.
func TestConfigureOffline(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "root-cert.pem"), []byte("roots"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := identity.LoadLocalKey(statefile.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	out, err := configure(t, "workload", "entry", "configure", "-f", "group.yaml", "--stateDir", dir, "--ingressIP", "192.0.2.1", "--autoregister", "-o", "out")
	if err != nil || !strings.Contains(out, "remark: --autoregister: a control plane that reads files registers no proxies") {
		t.Fatalf("%v\n%s", err, out)
	}
	token, err := os.ReadFile("out/istio-token")
	if err != nil {
		t.Fatal(err)
	}
	issuer := identity.LocalTokens(statefile.Dir(dir), []string{identity.Audience}, func() string { return "cluster.local" }, time.Now)
	caller, err := issuer.Authenticate(t.Context(), identity.Credentials{Token: strings.TrimSpace(string(token))})
	if err != nil || caller.Namespace != "shop" || caller.ServiceAccount != "web" || time.Until(caller.Expires) > time.Hour {
		t.Errorf("%+v, %v", caller, err)
	}
	for name, want := range map[string]os.FileMode{"istio-token": 0o600, "cluster.env": 0o644, "mesh.yaml": 0o644, "root-cert.pem": 0o644, "hosts": 0o644} {
		info, err := os.Stat(filepath.Join("out", name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// TestConfigureMistakes: errors say which flag or file is missing or wrong, and what to do.
func TestConfigureMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		"name a folder for the files with -o":     {"-f", "group.yaml"},
		"name the WorkloadGroup: with --name and": {"-o", "out", "--name", "vm"},
		"--tokenDuration: 0 is not between 1":     {"-o", "out", "-f", "group.yaml", "--tokenDuration", "0"},
		"kubeconfig file nowhere does not exist":  {"-o", "out", "-f", "group.yaml"},
		"start the control plane once, with the":  {"-o", "out", "-f", "group.yaml", "--stateDir", "empty"},
		"has no WorkloadGroup other":              {"-o", "out", "-f", "group.yaml", "--stateDir", "empty", "--name", "other"},
		"none.yaml: no such file":                 {"-o", "out", "-f", "none.yaml", "--stateDir", "empty"},
		"missing.yaml: no such file or directory": {"-o", "out", "-f", "group.yaml", "--stateDir", "empty", "--meshConfig", "missing.yaml"},
	} {
		if _, err := configure(t, append([]string{"workload", "entry", "configure"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; want %s", args, err, want)
		}
	}
}

// TestGroupCreate: the group is printed for kubectl.
func TestGroupCreate(t *testing.T) {
	out, err := configure(t, "workload", "group", "create", "--name", "vm", "-n", "shop", "-l", "app=web")
	if err != nil || !strings.Contains(out, "kind: WorkloadGroup") {
		t.Errorf("%v\n%s", err, out)
	}
}
