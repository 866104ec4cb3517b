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
	u.namespace("shop", "istio-injection=enabled")
	u.done("install", "-f", u.values)
	t.Cleanup(func() { u.run("uninstall", "--crds") })
	u.until("the root of the webhooks", u.rooted("istio-sidecar-injector"))
	u.deploy("shop")
	pods := u.pods("shop")
	if len(pods) != 1 || !pods[0].Injected {
		t.Fatalf("the shop has no proxy: %+v", pods)
	}
	name, pages := pods[0].Name+".shop", u.pages("istiod")
	u.proxyIsThere(name, pages)

	for _, c := range []struct {
		want string
		args []string
	}{
		{"outbound|80||web.shop.svc.cluster.local", []string{"proxy-config", "clusters", name, "--address", pages}},
		{"0.0.0.0", []string{"proxy-config", "listeners", name, "--address", pages}},
		{"web.shop.svc.cluster.local", []string{"proxy-config", "routes", pods[0].Name, "-n", "shop", "--address", pages}},
		{"HEALTHY", []string{"proxy-config", "endpoints", name}},
		{"default", []string{"proxy-config", "secret", name}},
		{"istio-proxy", []string{"proxy-config", "bootstrap", name, "-o", "json"}},
		{"level", []string{"proxy-config", "log", name}},
		{"gets a proxy", []string{"explain", "injection", name}},
		{"pod shop/web gets a proxy", []string{"check"}},
	} {
		if out, code := u.run(c.args...); code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("pilotctl %s: exit code %d, want 0 and %q", strings.Join(c.args, " "), code, c.want)
		}
	}
	u.askPages(name, pages)
	u.report(pages)
	u.remoteSecret(pages)
	u.fromIstio()
	u.analysis()
}

// rooted returns whether the webhooks of a configuration have their roots.
func (u *user) rooted(configuration string) func() bool {
	return func() bool {
		return u.kubectl("get", "mutatingwebhookconfiguration/"+configuration, "--ignore-not-found", "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}") != ""
	}
}

// proxyIsThere waits until a proxy has all of its configuration.
func (u *user) proxyIsThere(name, pages string) {
	u.Helper()
	u.until("a proxy with its configuration", func() bool {
		out, code := u.free("proxy-status", name, "--address", pages)
		return code == 0 && strings.Contains(out, "SYNCED")
	})
}

// askPages calls the commands that ask the pages of the control plane and no cluster.
func (u *user) askPages(name, pages string) {
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
		args := append(c.args, "--address", pages)
		if out, code := u.free(args...); code != 0 || !strings.Contains(out, c.want) {
			u.Errorf("pilotctl %s: exit code %d, want 0 and %q; it is\n%s", strings.Join(args, " "), code, c.want, out)
		}
	}
}

// report makes an archive with the logs of the cluster.
func (u *user) report(pages string) {
	u.Helper()
	file := filepath.Join(u.TempDir(), "report.tar.gz")
	out := u.done("bug-report", "--address", pages, "--file", file)
	if strings.Contains(out, "left out") {
		u.Errorf("parts of the report are missing")
	}
	if info, err := os.Stat(file); err != nil || info.Size() < 10_000 {
		u.Errorf("the archive: %v, %v", info, err)
	}
}

// remoteSecret lets the control plane read its own cluster as a remote one.
func (u *user) remoteSecret(pages string) {
	u.Helper()
	u.refused(1, "istio-reader-service-account", "create-remote-secret", "--name", "west")
	u.apply(u.done("create-remote-secret", "--print-account"))
	u.Cleanup(func() {
		u.kubectl("delete", "clusterrole,clusterrolebinding", "istio-reader-service-account-istio-system", "--ignore-not-found")
	})
	out := u.done("create-remote-secret", "--name", "west")
	_, secret, ok := strings.Cut(out, "# This Secret")
	if !ok {
		u.Fatal("no Secret is printed")
	}
	u.apply("# " + secret)
	u.until("the remote cluster", func() bool {
		out, code := u.free("remote-clusters", "--address", pages)
		return code == 0 && strings.Contains(out, "synced")
	})
	u.kubectl("delete", "secret", "istio-remote-secret-west", "-n", "istio-system")
	u.until("no remote cluster", func() bool {
		out, _ := u.free("remote-clusters", "--address", pages)
		return strings.Contains(out, "no remote clusters")
	})
}

// fromIstio reads the mesh of the cluster as if it were one of Istio.
func (u *user) fromIstio() {
	u.Helper()
	u.apply(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec: {host: web, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}
`)
	out, code := u.run("check", "--from-istio", "-o", "json")
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
	u.must(os.WriteFile(file, []byte(u.kubectl("get", "services,destinationrules", "-A", "-o", "yaml")), 0o600))
	if out, code := u.free("analyze", file); code != 0 {
		u.Errorf("analyze: exit code %d\n%s", code, out)
	}
}
