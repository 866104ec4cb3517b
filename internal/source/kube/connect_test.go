package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

const goodKubeconfig = `apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443", certificate-authority: ca.pem}}]
users: [{name: u, user: {token: t}}]
`

func TestConnect(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct{ name, old, new, want string }{
		{"good", "", "", ""},
		{"not YAML", "apiVersion", "[", "readable kubeconfig"},
		{"no context", "current-context: a", "", "it has no current-context"},
		{"unknown context", "current-context: a", "current-context: b", `current-context "b" does not exist`},
		{"unknown cluster", "cluster: c,", "cluster: d,", `refers to the cluster "d"`},
		{"unknown user", "user: u}", "user: v}", `refers to the user "v"`},
		{"no server", `server: "https://192.0.2.1:6443", `, "", `"c" has no server`},
		{"no authority", "ca.pem", "missing.pem", "missing.pem"},
		{"two ways", "{token: t}", "{token: t, username: x, password: pass}", "cannot be used"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubeconfig")
			if err := os.WriteFile(path, []byte(strings.Replace(goodKubeconfig, c.old, c.new, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), "ca.pem"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := Connect(path)
			if c.want == "" {
				if err != nil || got.Host != "https://192.0.2.1:6443" || got.CAFile != filepath.Join(filepath.Dir(path), "ca.pem") {
					t.Fatalf("%+v, %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Fatalf("error %v, want %q and the file", err, c.want)
			}
		})
	}
	if _, err := Connect(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "does not exist; correct --kubeconfig") {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Connect(""); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("outside of a cluster: %v", err)
	}
}

func TestNew(t *testing.T) {
	if _, err := New(Options{Cluster: "c1"}); err == nil {
		t.Error("no error without an API server")
	}
	if _, err := New(Options{Config: &rest.Config{Host: "https://192.0.2.1"}}); err == nil || !strings.Contains(err.Error(), "--clusterID") {
		t.Error("no error without a cluster ID")
	}
	broken := &rest.Config{Host: "https://192.0.2.1", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere/ca.pem"}}
	if _, err := New(Options{Config: broken, Cluster: "c1"}); err == nil || !strings.Contains(err.Error(), "cluster c1") {
		t.Errorf("broken credentials: %v", err)
	}
	s, err := New(Options{Config: &rest.Config{Host: "https://192.0.2.1"}, Cluster: "c1"})
	if err != nil || s.Name() != "kubernetes/c1" || s.o.Revision != "default" || s.o.Namespace != "istio-system" {
		t.Errorf("%+v, %v", s, err)
	}
}
