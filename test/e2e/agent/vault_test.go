package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/testbed"
)

const vaultHost = "vault.shop.svc.cluster.local"

// vault is a service of a bed whose backend speaks TLS, and the files with which a sidecar can speak to it.
type vault struct {
	*bed
	port int    // where sidecars listen for it
	dir  string // of the files
	tls  atomic.Pointer[tls.Config]
	pair certs.Pair // of the client
	ca   *certs.Authority
}

// newVault adds the service and its rule, of a mode. No file exists yet.
func newVault(b *bed, mode string) *vault {
	b.Helper()
	ports, err := testbed.FreePorts(1)
	if err != nil {
		b.Fatal(err)
	}
	v := &vault{bed: b, port: ports[0], dir: b.TempDir()}
	v.renew("first")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{
		ReadHeaderTimeout: patience,
		TLSConfig:         &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return v.tls.Load(), nil }},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close") // each request shows what holds now
			name := "nobody"
			if peer := r.TLS.PeerCertificates; len(peer) > 0 {
				name = certs.Name(peer[0])
			}
			_, _ = io.WriteString(w, name)
		}),
	}
	server.ErrorLog = quietLog()
	go func() { _ = server.ServeTLS(l, "", "") }() // ends by Close
	b.Cleanup(func() { _ = server.Close() })
	files := ""
	switch mode {
	case "SIMPLE":
		files = ", caCertificates: " + v.file("ca.pem")
	case "MUTUAL":
		files = ", caCertificates: " + v.file("ca.pem") + ", clientCertificate: " + v.file("cert.pem") + ", privateKey: " + v.file("key.pem")
	}
	v.write("vault.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: vault, namespace: shop}
spec:
  hosts: [%[1]s]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: %[2]d, name: main, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {main: %[3]d}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: vault, namespace: shop}
spec:
  host: %[1]s
  trafficPolicy: {tls: {mode: %[4]s, sni: vault.test, subjectAltNames: [vault.test]%[5]s}}
`, vaultHost, v.port, l.Addr().(*net.TCPAddr).Port, mode, files))
	return v
}

func (v *vault) file(name string) string { return filepath.Join(v.dir, name) }

// write changes the configuration.
func (b *bed) write(name, text string) {
	b.Helper()
	if _, err := b.Write(name, text); err != nil {
		b.Fatal(err)
	}
}

// renew gives the backend a certificate of another authority, which is also the only one whose clients it knows.
func (v *vault) renew(client string) {
	v.Helper()
	ca, err := certs.NewAuthority("authority of " + client)
	if err != nil {
		v.Fatal(err)
	}
	pair, err := ca.Issue(named("vault.test"))
	if err != nil {
		v.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		v.Fatal(err)
	}
	v.ca = ca
	if v.pair, err = ca.Issue(named(client)); err != nil {
		v.Fatal(err)
	}
	v.tls.Store(&tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: ca.Pool(), ClientAuth: tls.VerifyClientCertIfGiven,
		SessionTicketsDisabled: true, // each connection shows its certificate
	})
}

// named is the identity with a name, as a client and as a server.
func named(name string) certs.Identity { return certs.Identity{Name: name, Hosts: []string{name}} }

// put writes the client's files as they are to be now, each as a whole.
func (v *vault) put() {
	v.Helper()
	for name, text := range map[string]string{"ca.pem": v.ca.Pair().Cert, "cert.pem": v.pair.Cert, "key.pem": v.pair.Key} {
		beside := v.file("." + name)
		err := os.WriteFile(beside, []byte(text), 0o600)
		if err = errors.Join(err, os.Rename(beside, v.file(name))); err != nil {
			v.Fatal(err)
		}
	}
}

// ask asks the sidecar for the vault: the status, and whom the backend took it for.
func (v *vault) ask(ctx context.Context) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+testbed.Loopback(v.port)+"/", nil)
	if err != nil {
		return 0, "", err
	}
	req.Host = vaultHost
	resp, err := v.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	who, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(who), err
}

// opens waits until the backend answers, and took the sidecar for this client.
func (v *vault) opens(client string) {
	v.Helper()
	v.await("an answer from the vault for "+client, func(ctx context.Context) error {
		code, who, err := v.ask(ctx)
		if err == nil && (code != http.StatusOK || who != client) {
			err = fmt.Errorf("status %d: %s", code, who)
		}
		return err
	})
}

// stays checks that the vault is answered as this client, at once and again.
func (v *vault) stays(client string) {
	v.Helper()
	for range 20 {
		if code, who, err := v.ask(v.Context()); code != http.StatusOK || who != client || err != nil {
			v.Fatalf("status %d: %s, %v; want %s", code, who, err, client)
		}
	}
}

// fails waits until requests to the vault fail with 503 because there is a cluster, but none of its connections can be
// made; and checks that the web and a new service are served all the same.
func (v *vault) fails() {
	v.Helper()
	v.await("requests to the vault to fail", func(ctx context.Context) error {
		code, text, err := v.ask(ctx)
		if err == nil && (code != http.StatusServiceUnavailable || !strings.Contains(text, "remote connection failure")) {
			err = fmt.Errorf("status %d: %s", code, text)
		}
		return err
	})
	v.answers()
	v.follows()
}

// follows checks that an edit for another host arrives within a second. One of three has to: the machine may be busy.
func (b *bed) follows() {
	b.Helper()
	best := time.Hour
	for range 3 {
		if best = min(best, b.another()); best <= time.Second {
			return
		}
	}
	b.Errorf("a new service is served after %v, a second at most is promised", best)
}

// problem waits until the control plane reports a problem of a secret, with a text, or no longer reports one (empty).
func (b *bed) problem(secret, text string) {
	b.Helper()
	b.await("the control plane to tell of "+secret+": "+text, func(ctx context.Context) error {
		page, err := b.Get(ctx, "/debug/problemz")
		if err != nil {
			return err
		}
		var list []struct{ Field, Reason string }
		if err := json.Unmarshal([]byte(page), &list); err != nil {
			return err
		}
		for _, p := range list {
			switch {
			case p.Field != fmt.Sprintf("SDS %q", secret):
			case text == "" || !strings.Contains(p.Reason, text):
				return errors.New(p.Reason)
			default:
				return nil
			}
		}
		if text != "" {
			return errors.New("it does not")
		}
		return nil
	})
}

// another adds a service, and waits until the sidecar serves it. The time is from the edit to the answer.
func (b *bed) another() time.Duration {
	b.Helper()
	ports, err := testbed.FreePorts(1)
	if err != nil {
		b.Fatal(err)
	}
	port := ports[0]
	host := fmt.Sprintf("s%d.shop.svc.cluster.local", port)
	begin := time.Now()
	b.write(fmt.Sprintf("s%d.yaml", port), fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s%[1]d, namespace: shop}
spec:
  hosts: [%[2]s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[1]d, name: main, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {main: %[3]d}}]
`, port, host, b.backend.port))
	b.await("an answer from a new service", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+testbed.Loopback(port)+"/", nil)
		if err != nil {
			return err
		}
		req.Host = host
		resp, err := b.client.Do(req)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		return errors.Join(err, resp.Body.Close())
	})
	took := time.Since(begin)
	b.Logf("a new service was served after %v", took)
	return took
}

// secretState waits until the agent reports a state of a secret, with a text in the report.
func (b *bed) secretState(a *testbed.Agent, name, state, text string) {
	b.Helper()
	b.await("the agent to say of "+name+" that it is "+state, func(ctx context.Context) error {
		page, err := a.Status(ctx, "/debug/secretz")
		if err != nil {
			return err
		}
		var list struct {
			Secrets []struct{ Name, State, Problem, RefusedByEnvoy string }
		}
		if err := json.Unmarshal([]byte(page), &list); err != nil {
			return err
		}
		for _, s := range list.Secrets {
			if s.Name == name && s.State == state && strings.Contains(s.Problem+s.RefusedByEnvoy, text) {
				return nil
			}
		}
		return errors.New(page)
	})
}

// onlyEnvoy checks that the agent has started one Envoy so far.
func (b *bed) onlyEnvoy(a *testbed.Agent) {
	b.Helper()
	if pids, err := a.EnvoyPIDs(); err != nil || len(pids) != 1 {
		b.Errorf("Envoys %v, %v", pids, err)
	}
}
