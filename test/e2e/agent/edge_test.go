package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/testbed"
)

// edge is a gateway under its agent, behind a Service, with Secrets in a folder. Its hosts are below edge.example.com.
type edge struct {
	*bed
	authority *certs.Authority
	secrets   string
	gateway   int // its port for the port 443 of the Service, for TCP and UDP
	router    *testbed.Agent
}

// edgeMesh is everything except the servers of the Gateway.
const edgeMesh = `apiVersion: v1
kind: Service
metadata: {name: edge, namespace: shop}
spec:
  clusterIP: 10.255.0.9
  selector: {gw: edge}
  ports: [{name: https, port: 443, targetPort: %[1]d}, {name: http3, port: 443, protocol: UDP, targetPort: %[1]d}]
---
apiVersion: v1
kind: Pod
metadata: {name: app, namespace: shop, labels: {gw: edge}}
status: {podIP: 127.1.0.1}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: edge, namespace: shop}
spec:
  hosts: ["*.edge.example.com"]
  gateways: [edge]
  http: [{route: [{destination: {host: %[2]s, port: {number: %[3]d}}}]%[4]s}]
`

// newEdge starts a gateway with servers for some Secrets: each is of the host with its name. Further servers follow. env is for the control plane.
func newEdge(t *testing.T, env []string, secrets []string, more ...string) *edge {
	t.Helper()
	return newEdgeWith(t, env, nil, secrets, more...)
}

// newEdgeWith is the same with arguments for the control plane.
func newEdgeWith(t *testing.T, env, args []string, secrets []string, more ...string) *edge {
	t.Helper()
	ports, err := testbed.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	e := &edge{bed: newBed(t), secrets: filepath.Join(t.TempDir(), "secrets"), gateway: ports[0]}
	if e.authority, err = certs.NewAuthority("edge"); err != nil {
		t.Fatal(err)
	}
	e.Args, e.Env = append([]string{"--credentialsDir=" + e.secrets}, args...), env
	for _, name := range secrets {
		e.issue(name, "first")
		more = append(more, simpleServer(name))
	}
	e.routes("")
	e.servers(more...)
	e.TLSOnly()
	e.serve()
	o := e.certified("app")
	o.Role, o.Env = "router", append(o.Env, `ISTIO_METAJSON_LABELS={"gw":"edge"}`)
	e.router = e.ready(o, testbed.Node{})
	return e
}

// edgeHost is the host of a name.
func edgeHost(name string) string { return name + ".edge.example.com" }

// simpleServer is a server for the host with the name of a Secret.
func simpleServer(name string) string {
	return fmt.Sprintf("{port: {number: 443, name: %s, protocol: HTTPS}, hosts: [%s], tls: {mode: SIMPLE, credentialName: %s}}", name, edgeHost(name), name)
}

// routes writes the routes, and more settings of the only one.
func (e *edge) routes(more string) {
	e.Helper()
	if _, err := e.Write("edge.yaml", fmt.Sprintf(edgeMesh, e.gateway, webHost, e.port, more)); err != nil {
		e.Fatal(err)
	}
}

// servers writes the Gateway.
func (e *edge) servers(list ...string) {
	e.Helper()
	text := "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: edge, namespace: shop}\nspec:\n  selector: {gw: edge}\n  servers:\n"
	for _, s := range list {
		text += "  - " + s + "\n"
	}
	if _, err := e.Write("gateway.yaml", text); err != nil {
		e.Fatal(err)
	}
}

// issue writes a Secret with a good certificate whose subject has a name.
func (e *edge) issue(secret, name string) {
	e.Helper()
	pair, err := e.authority.Issue(certs.Identity{Name: name, Hosts: []string{edgeHost(secret)}})
	if err != nil {
		e.Fatal(err)
	}
	e.put(secret, pair.Cert, pair.Key)
}

// put writes a Secret.
func (e *edge) put(secret, cert, key string) {
	e.Helper()
	e.file(secret, "tls.crt", cert)
	e.file(secret, "tls.key", key)
}

// file replaces a file of a Secret at once.
func (e *edge) file(secret, name, text string) {
	e.Helper()
	dir := filepath.Join(e.secrets, "shop", secret)
	next := filepath.Join(e.TempDir(), name)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(next, []byte(text), 0o600), os.Rename(next, filepath.Join(dir, name))); err != nil {
		e.Fatal(err)
	}
}

// tlsTo are the settings of a client for a host.
func (e *edge) tlsTo(host string) *tls.Config {
	return &tls.Config{ServerName: host, RootCAs: e.authority.Pool(), MinVersion: tls.VersionTLS12}
}

// shown opens a connection to the gateway for a host and returns the certificate that it shows.
func (e *edge) shown(ctx context.Context, host string) (*x509.Certificate, error) {
	config := e.tlsTo(host)
	config.InsecureSkipVerify = true // the tests look at the certificate themselves
	d := tls.Dialer{Config: config}
	conn, err := d.DialContext(ctx, "tcp", testbed.Loopback(e.gateway))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// presents waits until the gateway shows a certificate whose subject has a name.
func (e *edge) presents(host, subject string) {
	e.Helper()
	e.await(host+" with the certificate "+subject, func(ctx context.Context) error {
		got, err := e.shown(ctx, host)
		if err == nil && got.Subject.CommonName != subject {
			err = fmt.Errorf("the certificate is %s", got.Subject.CommonName)
		}
		return err
	})
}

// over is a client whose connections are for a host.
func (e *edge) over(host string) *http.Client {
	t := &http.Transport{TLSClientConfig: e.tlsTo(host), ForceAttemptHTTP2: true}
	e.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: patience}
}

// answer asks for a host and returns the answer, whose body is closed.
func (e *edge) answer(ctx context.Context, client *http.Client, host string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+testbed.Loopback(e.gateway)+"/", nil)
	if err != nil {
		return nil, err
	}
	req.Host = host
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	return resp, resp.Body.Close()
}

// status asks for a host, and returns the status.
func (e *edge) status(client *http.Client, host string) int {
	e.Helper()
	resp, err := e.answer(e.Context(), client, host)
	if err != nil {
		e.Fatalf("%s: %v", host, err)
	}
	return resp.StatusCode
}

// serves waits until a host is answered with a status.
func (e *edge) serves(host string, want int) {
	e.Helper()
	client := e.over(host)
	e.await(fmt.Sprintf("%d from %s", want, host), func(ctx context.Context) error {
		resp, err := e.answer(ctx, client, host)
		if err == nil && resp.StatusCode != want {
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		return err
	})
}

// problem waits for a problem with all of some parts of text.
func (e *edge) problem(parts ...string) {
	e.Helper()
	var problems []string
	defer func() {
		if e.Failed() {
			e.Logf("the problems are %q", problems)
		}
	}()
	e.await(fmt.Sprintf("a problem with %q", parts), func(ctx context.Context) (err error) {
		if problems, err = e.Problems(ctx); err != nil {
			return err
		}
		for _, p := range problems {
			missing := 0
			for _, part := range parts {
				if !strings.Contains(p, part) {
					missing++
				}
			}
			if missing == 0 {
				return nil
			}
		}
		return fmt.Errorf("there are %d others", len(problems))
	})
}

// unrejected wants that Envoy has rejected nothing.
func (e *edge) unrejected() {
	e.Helper()
	const rejected = `^(cluster_manager\.cds|listener_manager\.lds|http\..*\.rds\..*|sds\..*)\.update_rejected$`
	if n, err := e.router.Sum(e.Context(), rejected); n != 0 || err != nil {
		e.Errorf("%d rejections, %v", n, err)
	}
}
