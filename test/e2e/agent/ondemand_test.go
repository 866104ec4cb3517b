package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/testbed"
)

// crowd is a gateway with so many hosts that it gets their certificates on demand. There are three Secrets, which the hosts share in turn.
type crowd struct {
	*bed
	authority *certs.Authority
	secrets   string
	gateway   int
	router    *testbed.Agent
}

// crowdMesh begins the objects of the gateway. A server follows for each host.
const crowdMesh = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: crowd, namespace: shop}
spec:
  hosts: ["*.crowd.example.com"]
  gateways: [crowd]
  http: [{route: [{destination: {host: %s, port: {number: %d}}}]}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: crowd, namespace: shop}
spec:
  selector: {gw: crowd}
  servers:
  - {port: {number: %[3]d, name: mutual, protocol: HTTPS}, hosts: [mutual.crowd.example.com], tls: {mode: MUTUAL, credentialName: c0}}
`

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	ports, err := testbed.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{bed: newBed(t), secrets: filepath.Join(t.TempDir(), "secrets"), gateway: ports[0]}
	if c.authority, err = certs.NewAuthority("crowd"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c.put(fmt.Sprintf("c%d", i), fmt.Sprintf("first-%d", i))
	}
	c.Args = []string{"--credentialsDir=" + c.secrets}
	c.TLSOnly()
	c.hosts(120)
	c.serve()
	o := c.certified("app")
	o.Role, o.Env = "router", append(o.Env, `ISTIO_METAJSON_LABELS={"gw":"crowd"}`)
	c.router = c.ready(o, testbed.Node{})
	return c
}

// put writes a Secret with a certificate whose subject has a name.
func (c *crowd) put(secret, name string) {
	c.Helper()
	pair, err := c.authority.Issue(certs.Identity{Name: name, Hosts: []string{"*.crowd.example.com"}})
	if err != nil {
		c.Fatal(err)
	}
	dir := filepath.Join(c.secrets, "shop", secret)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		c.Fatal(err)
	}
	for file, text := range map[string]string{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": c.authority.Pair().Cert} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			c.Fatal(err)
		}
	}
}

// hosts writes a gateway with n hosts. The last one names a Secret that does not exist.
func (c *crowd) hosts(n int) {
	c.Helper()
	b := fmt.Appendf(nil, crowdMesh, webHost, c.port, c.gateway)
	for i := range n {
		secret := fmt.Sprintf("c%d", i%3)
		if i == n-1 {
			secret = "gone"
		}
		b = fmt.Appendf(b, "  - {port: {number: %d, name: h%d, protocol: HTTPS}, hosts: [h%d.crowd.example.com], tls: {mode: SIMPLE, credentialName: %s}}\n", c.gateway, i, i, secret)
	}
	if _, err := c.Write("crowd.yaml", string(b)); err != nil {
		c.Fatal(err)
	}
}

// subject opens a connection to the gateway for a name in TLS, and returns the subject of the certificate that it shows.
func (c *crowd) subject(ctx context.Context, name string) (string, error) {
	d := tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // the test looks at the certificate itself
	conn, err := d.DialContext(ctx, "tcp", testbed.Loopback(c.gateway))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

// presents waits until the gateway shows a certificate for a name in TLS.
func (c *crowd) presents(name, subject string) {
	c.Helper()
	c.await(name+" with the certificate "+subject, func(ctx context.Context) error {
		got, err := c.subject(ctx, name)
		if err == nil && got != subject {
			err = fmt.Errorf("the certificate is %s", got)
		}
		return err
	})
}

// over is a client whose connections are all for a name in TLS.
func (c *crowd) over(name string) *http.Client {
	t := &http.Transport{TLSClientConfig: &tls.Config{ServerName: name, RootCAs: c.authority.Pool(), MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	c.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: patience}
}

// status asks for a host, whatever name the connection is for.
func (c *crowd) status(client *http.Client, host string) int {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), http.MethodGet, "https://"+testbed.Loopback(c.gateway)+"/", nil)
	if err != nil {
		c.Fatal(err)
	}
	req.Host = host
	resp, err := client.Do(req)
	if err != nil {
		c.Fatalf("%s: %v", host, err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// listenerChanges is how often the gateway's Envoy has replaced a listener.
func (c *crowd) listenerChanges() int64 {
	c.Helper()
	n, err := c.router.Sum(c.Context(), `^listener_manager\.(listener_modified|listener_in_place_updated)$`)
	if err != nil {
		c.Fatal(err)
	}
	return n
}

// TestCertificatesOnDemand: a gateway with more than a hundred hosts asks for a certificate when a client names the host, so that another host, another
// certificate and a restart of the control plane change no listener and end no connection. Names that it does not have get nothing at once.
func TestCertificatesOnDemand(t *testing.T) {
	c := newCrowd(t)
	c.knowsHosts()
	client := c.over("h1.crowd.example.com")
	c.separatesHosts(client)

	was := c.listenerChanges()
	c.hosts(130)
	c.presents("h125.crowd.example.com", "first-2")
	added := c.over("h125.crowd.example.com")
	c.await("the routes of the new host, which come behind its certificate", func(context.Context) error {
		if got := c.status(added, "h125.crowd.example.com"); got != http.StatusOK {
			return fmt.Errorf("status %d", got)
		}
		return nil
	})
	c.put("c1", "second")
	c.presents("h1.crowd.example.com", "second")
	c.presents("h4.crowd.example.com", "second")
	c.hosts(20)
	c.await("an end of h125", func(ctx context.Context) error {
		if _, err := c.subject(ctx, "h125.crowd.example.com"); err == nil {
			return fmt.Errorf("it has a certificate")
		}
		return nil
	})
	c.Discovery.Stop()
	if err := c.Discovery.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.put("c2", "third")
	c.presents("h2.crowd.example.com", "third")
	c.presents("h7.crowd.example.com", "second")
	if got := c.status(client, "h1.crowd.example.com"); got != http.StatusOK {
		t.Errorf("the first connection, at the end: %d", got)
	}
	if now := c.listenerChanges(); now != was {
		t.Errorf("listeners were replaced %d times", now-was)
	}
	const rejected = `^(cluster_manager\.cds|listener_manager\.lds|http\..*\.rds\..*)\.update_rejected$`
	if n, err := c.router.Sum(t.Context(), rejected); n != 0 || err != nil {
		t.Errorf("%d rejections, %v", n, err)
	}
}

// knowsHosts checks which names get a certificate, and that only a host without its Secret is a problem.
func (c *crowd) knowsHosts() {
	c.Helper()
	c.presents("h1.crowd.example.com", "first-1")
	c.presents("H2.CROWD.example.com", "first-2")
	if name, err := c.subject(c.Context(), "mutual.crowd.example.com"); err != nil && name == "" && !strings.Contains(err.Error(), "certificate required") {
		c.Errorf("a host with a filter chain of its own: %v", err)
	}
	for _, name := range []string{"h1000.crowd.example.com", "h119.crowd.example.com", "default", "kubernetes://c1", ""} {
		if got, err := c.subject(c.Context(), name); err == nil {
			c.Errorf("%q gets the certificate %s", name, got)
		}
	}
	c.await("a problem about the Secret that does not exist, and about no name that the gateway does not have", func(ctx context.Context) error {
		problems, err := c.Problems(ctx)
		all := strings.Join(problems, "\n")
		if strings.Contains(all, "h1000") {
			c.Errorf("a client caused a problem: %s", all)
		}
		if err == nil && !strings.Contains(all, "there is no folder shop/gone") {
			err = fmt.Errorf("the problems are %q", problems)
		}
		return err
	})
}

// separatesHosts checks that a connection for one host serves no other host.
func (c *crowd) separatesHosts(client *http.Client) {
	c.Helper()
	for host, want := range map[string]int{"h1.crowd.example.com": 200, "h2.crowd.example.com": http.StatusMisdirectedRequest, "h1000.crowd.example.com": 404} {
		if got := c.status(client, host); got != want {
			c.Errorf("%s over a connection for h1: %d, want %d", host, got, want)
		}
	}
}
