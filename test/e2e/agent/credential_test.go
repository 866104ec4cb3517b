package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/testbed"
)

// guarded is a service outside the mesh that demands a client certificate, with a rule that names the Secret of the client. A connection
// serves five requests, so that there are always new ones.
const guarded = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [%[1]s]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: %[2]d, name: main, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {main: %[3]d}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec:
  host: %[1]s
  workloadSelector: {matchLabels: {app: app}}
  trafficPolicy:
    tls: {mode: MUTUAL, credentialName: "%[4]s", sni: guarded.example.com, subjectAltNames: [guarded.example.com]}
    connectionPool: {http: {maxRequestsPerConnection: 5}}
`

// secretBed is a folder of Secrets, and a server that demands certificates of its authority.
type secretBed struct {
	*bed
	authority *certs.Authority
	dir       string
	server    int          // its port
	client    atomic.Value // the name in the last client certificate
	keys      []string     // a part of each key that was written
}

// newSecretBed prepares a control plane that serves Secrets, and the server. credential is the credentialName of the rule.
func newSecretBed(t *testing.T, credential string) *secretBed {
	t.Helper()
	v := &secretBed{bed: newBed(t), dir: filepath.Join(t.TempDir(), "secrets")}
	v.client.Store("")
	var err error
	if v.authority, err = certs.NewAuthority("clients"); err != nil {
		t.Fatal(err)
	}
	pair, err := v.authority.Issue(certs.Identity{Name: "server", Hosts: []string{"guarded.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	own, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: v.authority.Pool(),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		v.client.Store(r.TLS.PeerCertificates[0].Subject.CommonName)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	v.server = l.Addr().(*net.TCPAddr).Port
	if err := os.MkdirAll(v.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	v.Args = []string{"--credentialsDir=" + v.dir}
	v.rule(credential)
	return v
}

// rule writes the configuration.
func (v *secretBed) rule(credential string) {
	v.Helper()
	if _, err := v.Write("web.yaml", fmt.Sprintf(guarded, webHost, v.port, v.server, credential)); err != nil {
		v.Fatal(err)
	}
}

// put writes a Secret with a certificate of a client of the name.
func (v *secretBed) put(secret, name string) {
	v.Helper()
	pair, err := v.authority.Issue(certs.Identity{Name: name})
	if err != nil {
		v.Fatal(err)
	}
	v.keys = append(v.keys, strings.Split(pair.Key, "\n")[1])
	dir := filepath.Join(v.dir, secret)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		v.Fatal(err)
	}
	for file, text := range map[string]string{"ca.crt": v.authority.Pair().Cert, "tls.crt": pair.Cert, "tls.key": pair.Key} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			v.Fatal(err)
		}
	}
}

// calls waits until the server sees a client of the name.
func (v *secretBed) calls(name string) {
	v.Helper()
	v.await("the server to see "+name, func(ctx context.Context) error {
		code, err := v.get(ctx)
		if err == nil && (code != http.StatusOK || v.client.Load() != name) {
			err = fmt.Errorf("status %d, and it has seen %q", code, v.client.Load())
		}
		return err
	})
}

// awaitProblem waits until a problem of the control plane has a text.
func (v *secretBed) awaitProblem(text string) {
	v.Helper()
	v.await("a problem: "+text, func(ctx context.Context) error {
		problems, err := v.Problems(ctx)
		if err == nil && !strings.Contains(strings.Join(problems, "\n"), text) {
			err = fmt.Errorf("there are %q", problems)
		}
		return err
	})
}

// shut checks that requests fail.
func (v *secretBed) shut() {
	v.Helper()
	if code, err := v.get(v.Context()); err != nil || code != http.StatusServiceUnavailable {
		v.Errorf("status %d, %v; want 503", code, err)
	}
	if got := v.client.Load(); got != "" {
		v.Errorf("the server has seen %q", got)
	}
}

// hidesKeys checks that no key is in any log, page, or file that the control plane or an agent writes.
func (v *secretBed) hidesKeys(a *testbed.Agent) {
	v.Helper()
	own, err := v.WholeLog()
	if err != nil {
		v.Fatal(err)
	}
	shown := map[string]string{"log of the agent": v.log(a), "log of the control plane": own}
	var pages []struct {
		Path string `json:"path"`
	}
	var index string
	if index, err = v.Discovery.Get(v.Context(), "/debug/list"); err == nil {
		err = json.Unmarshal([]byte(index), &pages)
	}
	if err != nil || len(pages) < 10 {
		v.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		query := url.Values{"proxyID": {"app.shop"}}
		switch page.Path {
		case "/debug/live", "/debug/explain", "/debug/can-i", "/debug/patchz": // they need an object
			continue
		}
		if strings.Contains(page.Path, "pprof") {
			continue
		}
		if shown[page.Path], err = v.Discovery.Get(v.Context(), page.Path+"?"+query.Encode()); err != nil {
			if shown[page.Path], err = v.Discovery.Get(v.Context(), page.Path); err != nil {
				v.Errorf("%s: %v", page.Path, err)
			}
		}
	}
	if shown["/metrics"], err = v.Discovery.Get(v.Context(), "/metrics"); err != nil {
		v.Error(err)
	}
	if err := filepath.WalkDir(v.StateDir, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // there is no certificate authority
		}
		if err == nil && !d.IsDir() {
			var text []byte
			text, err = os.ReadFile(path)
			shown[path] = string(text)
		}
		return err
	}); err != nil {
		v.Error(err)
	}
	for place, text := range shown {
		for _, key := range v.keys {
			if strings.Contains(text, key) {
				v.Errorf("%s shows a key", place)
			}
		}
	}
	if page := shown["/debug/syncz"]; !strings.Contains(page, "app") {
		v.Errorf("the pages are not about the proxy: %s", page)
	}
}

// TestCredential is the life of a Secret by name: it comes after the rule, is replaced under load without a failed request, breaks and
// stays, and its key shows nowhere.
func TestCredential(t *testing.T) {
	for _, node := range []testbed.Node{{}, {SotW: true}} {
		t.Run(node.Variant(), func(t *testing.T) {
			v := newSecretBed(t, "client")
			v.TLSOnly()
			v.serve()
			a := v.ready(v.certified("app"), node)
			v.awaitProblem(`SDS "kubernetes://client": proxy`)
			v.shut()
			v.put("shop/client", "first")
			v.calls("first")
			load := testbed.StartAsking(t.Context(), 5, 100, func(ctx context.Context, _ *http.Client) (string, error) {
				code, err := v.get(ctx)
				if err == nil && code != http.StatusOK {
					err = fmt.Errorf("status %d", code)
				}
				return "", err
			})
			for _, name := range []string{"second", "third"} {
				v.put("shop/client", name)
				v.calls(name)
			}
			if err := os.WriteFile(filepath.Join(v.dir, "shop/client/tls.key"), []byte("-----BEGIN PRIVATE KEY-----\nx"), 0o600); err != nil {
				t.Fatal(err)
			}
			v.awaitProblem("the last good version stays in force")
			v.calls("third")
			if tally := load.Stop(); tally.Total() == 0 || tally.Failures > 0 {
				t.Errorf("%d of %d requests failed, the first one because: %v", tally.Failures, tally.Total(), tally.First)
			}
			if err := a.Rejected(t.Context()); err != nil {
				t.Error(err)
			}
			v.hidesKeys(a)
		})
	}
}

// TestCredentialRefused: a proxy gets no Secret of another namespace, and none if it has not shown who it is.
func TestCredentialRefused(t *testing.T) {
	t.Run("another namespace", func(t *testing.T) {
		v := newSecretBed(t, "kubernetes://depot/client")
		v.put("depot/client", "first")
		v.TLSOnly()
		v.serve()
		a := v.ready(v.certified("app"), testbed.Node{})
		v.awaitProblem("may not have it: the Secret is of namespace depot, and the proxy of shop")
		v.shut()
		v.hidesKeys(a)
	})
	t.Run("plain text", func(t *testing.T) {
		v := newSecretBed(t, "client")
		v.put("shop/client", "first")
		v.serve()
		a := v.ready(options(), testbed.Node{})
		v.awaitProblem("may not have it: the proxy has not shown who it is")
		v.shut()
		v.hidesKeys(a)
	})
}
