package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/kit/echo"
	"github.com/pilotmesh/pilot/test/testbed"
)

const (
	peerHeader = "x-envoy-peer-metadata"
	idHeader   = "x-envoy-peer-metadata-id"
	cartHost   = "cart.shop.svc.cluster.local"
	cartIP     = "127.1.0.2"
	apiHost    = "api.example.com"
)

// cart is a service whose proxy takes mutual TLS and plain text, and one outside of the mesh at the same application.
const cart = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: cart, namespace: shop}
spec:
  hosts: [cart.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[1]d, name: http, protocol: HTTP}]
  endpoints: [{address: 127.1.0.2, ports: {http: %[2]d}, serviceAccount: cart, labels: {app: cart, version: v1, security.istio.io/tlsMode: istio}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: shop}
spec:
  hosts: [api.example.com]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: %[1]d, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: %[2]d}}]
---
# Both proxies run on one machine, where only one of them can listen for the services.
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: cart, namespace: shop}
spec: {workloadSelector: {labels: {app: cart}}, egress: [{hosts: [~/*]}]}
`

// peersBed is a mesh whose certificates come from an authority of its own, which does not name workloads.
type peersBed struct {
	*bed
	ca       *certs.Authority
	port     int // where the client's proxy listens for cart and api
	app      *testbed.Backend
	requests *http.Client
}

func newPeersBed(t *testing.T) *peersBed {
	t.Helper()
	b := &peersBed{bed: newBed(t), requests: testbed.NewClient()}
	t.Cleanup(b.requests.CloseIdleConnections)
	ports, err := testbed.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	b.port = ports[0]
	if b.ca, err = certs.NewAuthority("elsewhere"); err != nil {
		t.Fatal(err)
	}
	if b.app, err = testbed.StartHTTP("cart", 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.app.Close() })
	settings := filepath.Join(t.TempDir(), "mesh.yaml")
	if err := os.WriteFile(settings, []byte("defaultProviders: {metrics: [prometheus]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Args = []string{"--meshConfig=" + settings}
	if _, err := b.Write("cart.yaml", fmt.Sprintf(cart, b.port, b.app.Port)); err != nil {
		t.Fatal(err)
	}
	b.serve()
	return b
}

// issue returns a certificate of a service account. about is the names of the workload in it; empty for none.
func (b *peersBed) issue(namespace, account, about string) certs.Pair {
	b.Helper()
	pair, err := b.ca.Issue(certs.Identity{URIs: []string{"spiffe://cluster.local/ns/" + namespace + "/sa/" + account}}, func(c *x509.Certificate) {
		if about != "" {
			c.Subject = pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{{Type: identity.AboutType(), Value: about}}}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	return pair
}

// mounted starts the proxy of a workload with mounted certificates.
func (b *peersBed) mounted(app, version, ip string) *testbed.Agent {
	b.Helper()
	o := options()
	o.Dir = b.TempDir()
	dir, pair := filepath.Join(o.Dir, "etc", "certs"), b.issue("shop", app, "")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string]string{"root-cert.pem": b.ca.Pair().Cert, "cert-chain.pem": pair.Cert, "key.pem": pair.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	o.Env = []string{fmt.Sprintf(`ISTIO_METAJSON_LABELS={"app":%q,"version":%q}`, app, version), "ISTIO_META_CLUSTER_ID=east", "ISTIO_META_WORKLOAD_NAME=" + app + "-" + version}
	return b.ready(o, testbed.Node{Name: app, IP: ip})
}

// calls sends a request with headers until it is answered, and returns what the application saw.
func (b *peersBed) calls(host string, headers ...string) (seen echo.Report) {
	b.Helper()
	b.await("an answer from "+host, func(ctx context.Context) (err error) {
		seen, err = testbed.Call(ctx, b.requests, b.port, host, "/", headers...)
		return err
	})
	return seen
}

// asks sends a request to the server's proxy as a client that has no proxy of ours would: with a certificate, or in plain text without one.
func (b *peersBed) asks(pair *certs.Pair, headers ...string) echo.Report {
	b.Helper()
	client := testbed.NewClient()
	defer client.CloseIdleConnections()
	to := net.JoinHostPort(cartIP, strconv.Itoa(b.app.Port))
	client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		if pair == nil {
			return new(net.Dialer).DialContext(ctx, "tcp", to)
		}
		certificate, err := pair.TLS()
		if err != nil {
			return nil, err
		}
		d := tls.Dialer{Config: &tls.Config{
			Certificates: []tls.Certificate{certificate}, NextProtos: []string{"istio-http/1.1", "istio"}, ServerName: "outbound_.80_._." + cartHost,
			InsecureSkipVerify: true, // the test is about the client
		}}
		return d.DialContext(ctx, "tcp", to)
	}}
	seen, err := testbed.Call(b.Context(), client, b.app.Port, cartHost, "/", headers...)
	if err != nil {
		b.Fatal(err)
	}
	return seen
}

// unseen wants that the application saw neither header.
func (b *peersBed) unseen(seen echo.Report, when string) {
	b.Helper()
	for _, name := range []string{peerHeader, idHeader} {
		if values := seen.Headers.Values(name); len(values) > 0 {
			b.Errorf("%s: the application sees %s: %q", when, name, values)
		}
	}
}

// says returns a header with some fields: a Struct for proxies of Istio, or what a stock Envoy reads.
func says(t *testing.T, istio bool, fields map[string]any) string {
	t.Helper()
	s, err := structpb.NewStruct(fields)
	if err != nil {
		t.Fatal(err)
	}
	var m proto.Message = s
	if !istio {
		m = structpb.NewStructValue(s)
	}
	text, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(text)
}

// TestPeersOfOtherAuthorities: certificates of another authority do not name the workload, so servers take it from a header of the client's proxy: only
// over mutual TLS, never instead of the certificate, never from the application, and never from the header what only the identity says.
func TestPeersOfOtherAuthorities(t *testing.T) {
	b := newPeersBed(t)
	server := b.mounted("cart", "v1", cartIP)
	b.mounted("shopper", "v2", "127.1.0.1")
	forged := []string{
		peerHeader, says(t, false, map[string]any{"workload": "evil", "app": "evil", "version": "evil", "canonical_service": "evil", "workload_namespace": "evil", "cluster": "evil"}),
		idHeader, "sidecar~10.6.6.6~evil-7d4b9c8f6d-x2x4z.evil~evil.svc.cluster.local",
	}
	shopper := map[string]string{
		"reporter": "destination", "source_workload": "shopper-v2", "source_workload_namespace": "shop", "source_app": "shopper", "source_version": "v2",
		"source_canonical_service": "shopper", "source_canonical_revision": "v2", "source_cluster": "east",
		"source_principal": "spiffe://cluster.local/ns/shop/sa/shopper", "connection_security_policy": "mutual_tls", "destination_workload": "cart-v1",
	}
	b.unseen(b.calls(cartHost), "from a proxy")
	b.unseen(b.calls(cartHost, forged...), "forged by the application of a proxy")
	b.counted(server, shopper, 2)
	b.unseen(b.calls(apiHost), "outside of the mesh")

	b.unseen(b.asks(nil, forged...), "in plain text")
	b.counted(server, map[string]string{
		"source_workload": "unknown", "source_workload_namespace": "unknown", "source_app": "unknown", "source_version": "unknown", "source_canonical_service": "unknown",
		"source_canonical_revision": "unknown", "source_cluster": "unknown", "source_principal": "unknown", "connection_security_policy": "none",
	}, 1)

	named := b.issue("store", "till", "till-v1/till//till/latest/west")
	b.unseen(b.asks(&named, forged...), "with a certificate that names the workload")
	b.counted(server, map[string]string{
		"source_workload": "till-v1", "source_workload_namespace": "store", "source_app": "till", "source_version": "unknown", "source_canonical_service": "till",
		"source_canonical_revision": "latest", "source_cluster": "west", "source_principal": "spiffe://cluster.local/ns/store/sa/till", "connection_security_policy": "mutual_tls",
	}, 1)
	if _, page, _ := b.page(server.StatusPort, "/stats/prometheus", ""); strings.Contains(page, "evil") {
		t.Error("a forged header is believed")
	}
	b.otherPeers(server)
}

// otherPeers sends requests of clients with a certificate that does not name the workload, as proxies that are not ours.
func (b *peersBed) otherPeers(server *testbed.Agent) {
	b.Helper()
	for account, c := range map[string]struct{ metadata, id, workload string }{
		"frontend": {says(b.T, true, map[string]any{"WORKLOAD_NAME": "frontend-v1", "NAMESPACE": "evil"}), "sidecar~10.1.1.1~frontend-v1-7d4b9c8f6d-x2x4z.evil~evil.svc.cluster.local", "frontend-v1"},
		"database": {"", "sidecar~10.1.1.1~database-0.evil~evil.svc.cluster.local", "database"},
		"broken":   {"%%%", "nobody", "unknown"},
		"silent":   {"", "", "unknown"},
		"liar":     {says(b.T, false, map[string]any{"workload": "other", "workload_namespace": "evil"}), "", "other"}, // a proxy with a certificate is believed the name
	} {
		var headers []string
		for name, value := range map[string]string{peerHeader: c.metadata, idHeader: c.id} {
			if value != "" {
				headers = append(headers, name, value)
			}
		}
		pair := b.issue("store", account, "")
		b.unseen(b.asks(&pair, headers...), account)
		b.counted(server, map[string]string{
			"source_workload": c.workload, "source_workload_namespace": "store", "source_app": "unknown", "source_version": "unknown",
			"source_principal": "spiffe://cluster.local/ns/store/sa/" + account, "connection_security_policy": "mutual_tls",
		}, 1)
	}
	if _, page, _ := b.page(server.StatusPort, "/stats/prometheus", ""); strings.Contains(page, "evil") {
		b.Error("a namespace comes from a header")
	}
}
