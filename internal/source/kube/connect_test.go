package kube

import (
	"fmt"
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

// TestConnectRemote checks what a kubeconfig in a Secret may have. No error and no warning quotes the credentials.
func TestConnectRemote(t *testing.T) {
	const secret = "s3cr3t"
	kubeconfig := func(cluster, user string) string {
		return "{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {" +
			cluster + "}}], users: [{name: u, user: {" + user + "}}]}"
	}
	const server, token = "server: 'https://10.0.0.1:6443'", "token: " + secret
	for _, c := range []struct{ name, text, want string }{
		{"a token", kubeconfig(server, token), ""},
		{"without a user", "{current-context: x, contexts: [{name: x, context: {cluster: c}}], clusters: [{name: c, cluster: {" + server + "}}]}", ""},
		{"empty", "", "it is empty"},
		{"not YAML", "users: [" + secret, "not a kubeconfig"},
		{"a wrong type", "users: " + secret, "not a kubeconfig"},
		{"base64 that is none", kubeconfig(server, "client-key-data: '"+secret+"!'"), "not a kubeconfig"},
		{"without a context", "{}", "no current-context"},
		{"without a server", kubeconfig("", token), "no server"},
		{"a plugin", kubeconfig(server, "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never, env: [{name: A, value: "+secret+"}]}"), "(exec)"},
		{"a provider", kubeconfig(server, "auth-provider: {name: oidc, config: {id-token: "+secret+"}}"), "auth-provider"},
		{"a file with certificates", kubeconfig(server+", certificate-authority: /etc/ca", token), "certificate-authority-data"},
		{"a file with a token", kubeconfig(server, "tokenFile: /etc/"+secret), "put the token into token"},
		{"a file with a certificate", kubeconfig(server, "client-certificate: /etc/"+secret), "client-certificate-data"},
		{"a file with a key", kubeconfig(server, "client-key: /etc/"+secret), "client-key-data"},
		{"a password in the server", kubeconfig("server: 'https://u:"+secret+"@10.0.0.1'", ""), "contains a user or a password"},
		{"a password in the proxy", kubeconfig(server+", proxy-url: 'http://u:"+secret+"@10.0.0.2'", token), "contains a user or a password"},
		{"no URL", kubeconfig("server: '10.0.0.1'", token), "server is not a URL"},
		{"without verification", kubeconfig(server+", insecure-skip-tls-verify: true", token), "insecure-skip-tls-verify"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, got, err := ConnectRemote(Kubeconfig(c.text))
			if err != nil {
				got = err.Error()
			}
			if (config == nil) != (err != nil) || (c.want == "") != (got == "") || !strings.Contains(got, c.want) || strings.Contains(got, secret) {
				t.Errorf("got %v and %q, want %q", config != nil, got, c.want)
			}
		})
	}
	for _, text := range []string{
		fmt.Sprint(Secret{Clusters: map[string]Kubeconfig{"c": Kubeconfig(secret)}}), fmt.Sprintf("%+v", Remote{Secrets: []Secret{{Clusters: map[string]Kubeconfig{"c": Kubeconfig(secret)}}}}),
		fmt.Sprintf("%#v", Kubeconfig(secret)), Kubeconfig(secret).String(),
	} {
		if strings.Contains(text, secret) || !strings.Contains(text, hidden) {
			t.Errorf("a kubeconfig prints as %q", text)
		}
	}
}
