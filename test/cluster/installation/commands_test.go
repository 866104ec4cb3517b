package installation

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommands: each command that looks at a cluster or at its control plane, on a real one with a proxy in a pod.
func TestCommands(t *testing.T) {
	u := on(t)
	u.Namespace("shop", "istio-injection=enabled")
	u.Done("install", "-f", u.Values)
	t.Cleanup(func() { u.Run("uninstall", "--crds") })
	u.Until("the root of the webhooks", u.Rooted("istio-sidecar-injector"))
	u.Deploy("shop")
	pods := u.Pods("shop")
	if len(pods) != 1 || !pods[0].Injected {
		t.Fatalf("the shop has no proxy: %+v", pods)
	}
	name := pods[0].Name + ".shop"
	u.proxyIsThere(name)

	for _, c := range []struct {
		want string
		args []string
	}{
		{"web.shop.svc.cluster.local", []string{"proxy-config", "clusters", name}},
		{"0.0.0.0", []string{"proxy-config", "listeners", name}},
		{"web.shop.svc.cluster.local", []string{"proxy-config", "routes", pods[0].Name, "-n", "shop"}},
		{"HEALTHY", []string{"proxy-config", "endpoints", name}},
		{"default", []string{"proxy-config", "secret", name}},
		{"istio-proxy", []string{"proxy-config", "bootstrap", name, "-o", "json"}},
		{"upstream", []string{"proxy-config", "log", name}},
		{"gets a proxy", []string{"explain", "injection", name}},
		{"a pod of shop gets a proxy", []string{"check"}},
	} {
		if out, code := u.Run(c.args...); code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("pilotctl %s: exit code %d, want 0 and %q", strings.Join(c.args, " "), code, c.want)
		}
	}
	u.askPages(name)
	u.report()
	u.remoteSecret()
	u.fromIstio()
	u.analysis()
}

// proxyIsThere waits until a proxy has all of its configuration.
func (u *user) proxyIsThere(name string) {
	u.Helper()
	last := ""
	u.Until("a proxy with its configuration", func() bool {
		out, code := u.Free("proxy-status", name)
		if out != last {
			u.Logf("proxy-status: exit code %d\n%s", code, out)
			last = out
		}
		return code == 0 && strings.Contains(out, "SYNCED")
	})
}

// askPages calls the commands that ask the pages of the control plane and no cluster.
func (u *user) askPages(name string) {
	u.Helper()
	for _, c := range []struct {
		want string
		args []string
	}{
		{"web.shop.svc.cluster.local", []string{"describe", "service", "web", "-n", "shop"}},
		{"web.shop", []string{"describe", "pod", name}},
		{"1 of version", []string{"version"}},
		{"no remote clusters", []string{"remote-clusters"}},
		{"SYNCED", []string{"proxy-status"}},
		{"no problems", []string{"problems"}},
	} {
		if out, code := u.Free(c.args...); code != 0 || !strings.Contains(out, c.want) {
			u.Errorf("pilotctl %s: exit code %d, want 0 and %q; it is\n%s", strings.Join(c.args, " "), code, c.want, out)
		}
	}
}

// report makes an archive with the logs of the cluster.
func (u *user) report() {
	u.Helper()
	file := filepath.Join(u.TempDir(), "report.tar.gz")
	out := u.Done("bug-report", "--file", file)
	if n := strings.Count(out, "left out"); n != 1 || !strings.Contains(out, "left out: Secrets") {
		u.Errorf("parts of the report are missing")
	}
	if info, err := os.Stat(file); err != nil || info.Size() < 10_000 {
		u.Errorf("the archive: %v, %v", info, err)
	}
}

// remoteSecret lets the control plane read its own cluster as a remote one.
func (u *user) remoteSecret() {
	u.Helper()
	u.Refused(1, "istio-reader-service-account", "create-remote-secret", "--name", "west")
	u.Apply(u.Done("create-remote-secret", "--print-account"))
	u.Cleanup(func() {
		u.Kubectl("delete", "serviceaccount,secret", "istio-reader-service-account", "istio-reader-service-account-istio-remote-secret-token", "-n", "istio-system", "--ignore-not-found")
		u.Kubectl("delete", "clusterrole,clusterrolebinding", "istio-reader-service-account-istio-system", "--ignore-not-found")
	})
	out := u.Done("create-remote-secret", "--name", "west")
	_, secret, ok := strings.Cut(out, "# This Secret")
	if !ok {
		u.Fatal("no Secret is printed")
	}
	u.Apply("# " + secret)
	u.Until("the remote cluster", func() bool {
		out, code := u.Free("remote-clusters")
		return code == 0 && strings.Contains(out, "synced")
	})
	u.Kubectl("delete", "secret", "istio-remote-secret-west", "-n", "istio-system")
	u.Until("no remote cluster", func() bool {
		out, _ := u.Free("remote-clusters")
		return strings.Contains(out, "no remote clusters")
	})
}

// fromIstio reads the mesh of the cluster as if it were one of Istio.
func (u *user) fromIstio() {
	u.Helper()
	u.Apply(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec: {host: web, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}
`)
	out, code := u.Run("check", "--from-istio", "-o", "json")
	var found []map[string]any
	start := strings.Index(out, "[")
	if code > 1 || start < 0 {
		u.Fatalf("check --from-istio: exit code %d\n%s", code, out)
	}
	if err := json.NewDecoder(strings.NewReader(out[start:])).Decode(&found); err != nil {
		u.Errorf("check --from-istio: %v", err)
	}
}

// analysis analyzes the objects of the cluster.
func (u *user) analysis() {
	u.Helper()
	file := filepath.Join(u.TempDir(), "cluster.yaml")
	u.Must(os.WriteFile(file, []byte(u.Kubectl("get", "services,destinationrules", "-A", "-o", "yaml")), 0o600))
	if out, code := u.Free("analyze", file); code != 0 {
		u.Errorf("analyze: exit code %d\n%s", code, out)
	}
}
