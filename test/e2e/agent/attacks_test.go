package agent

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	security "istio.io/api/security/v1alpha1"

	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/testbed"
)

// denials are the policies of the attacked service beside the policies of rotated, by which only the account app may call it.
const denials = `---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-admin, namespace: shop}
spec:
  action: DENY
  rules:
  - to: [{operation: {paths: ["/admin*"]}}]
  - to: [{operation: {hosts: [admin.shop]}}]
  - to: [{operation: {methods: [DELETE]}}]
  - when: [{key: "request.headers[x-role]", values: [intern, "guest*", "*bot"]}]
  - to: [{operation: {paths: [/vault]}}]
    when: [{key: "request.headers[x-key]", notValues: [gold]}]
`

// attacked is a mesh with a sidecar that is attacked at the address where other sidecars call it.
type attacked struct {
	*bed
	address string
	roots   []byte
}

func attack(t *testing.T) *attacked {
	b := newBed(t)
	b.TLSOnly()
	if _, err := b.Write("web.yaml", fmt.Sprintf(rotated, webHost, b.port, b.backend.port)+denials); err != nil {
		t.Fatal(err)
	}
	b.serve()
	b.ready(b.certified("web"), testbed.Node{Name: "web", IP: "127.1.0.2"})
	roots, err := os.ReadFile(filepath.Join(b.StateDir, "root-cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return &attacked{b, net.JoinHostPort("127.1.0.2", strconv.Itoa(b.backend.port)), roots}
}

// identity returns a certificate that the authority of the mesh has issued to an account.
func (a *attacked) identity(account string) tls.Certificate {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		a.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.roots)
	conn, err := grpc.NewClient(a.Secure, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})))
	if err != nil {
		a.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx := metadata.AppendToOutgoingContext(a.Context(), "authorization", "Bearer "+strings.TrimSpace(a.token(a.certified(account))))
	got, err := security.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &security.IstioCertificateRequest{
		Csr: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
	})
	if err != nil {
		a.Fatal(err)
	}
	c := tls.Certificate{PrivateKey: key}
	for _, text := range got.GetCertChain() {
		block, _ := pem.Decode([]byte(text))
		c.Certificate = append(c.Certificate, block.Bytes)
	}
	return c
}

// send sends a request as it is, over TLS unless settings are nil, and returns the status; 0 if the connection is refused.
func (a *attacked) send(settings *tls.Config, request string) int {
	a.Helper()
	conn, err := net.DialTimeout("tcp", a.address, patience)
	if err != nil {
		a.Fatal(err)
	}
	defer func() { conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		a.Fatal(err)
	}
	if settings != nil {
		conn = tls.Client(conn, settings)
	}
	if _, err := conn.Write([]byte(request)); err != nil {
		return 0
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// as are the settings of a client with a certificate. Who the server is does not matter to an attacker.
func as(c tls.Certificate, change ...func(*tls.Config)) *tls.Config {
	s := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, NextProtos: []string{"istio-http/1.1"}, Certificates: []tls.Certificate{c}}
	for _, f := range change {
		f(s)
	}
	return s
}

func offers(protocols ...string) func(*tls.Config) {
	return func(s *tls.Config) { s.NextProtos = protocols }
}

func names(host string) func(*tls.Config) { return func(s *tls.Config) { s.ServerName = host } }

// get is a request of HTTP/1.1 with more header lines.
func get(path string, lines ...string) string {
	text := "GET " + path + " HTTP/1.1\r\nHost: " + webHost + "\r\n"
	for _, l := range lines {
		text += l + "\r\n"
	}
	return text + "Connection: close\r\n\r\n"
}

// forgeries are certificates with an identity, one by another authority and one that signs itself.
func forgeries(t *testing.T, id string) (forged, own tls.Certificate) {
	t.Helper()
	stranger, err := certs.NewAuthority("another mesh")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := stranger.Issue(certs.Identity{URIs: []string{id}})
	if err != nil {
		t.Fatal(err)
	}
	if forged, err = pair.TLS(); err != nil {
		t.Fatal(err)
	}
	if own, err = certs.SelfSigned(certs.Identity{URIs: []string{id}}); err != nil {
		t.Fatal(err)
	}
	return forged, own
}

// TestAttacks: a client that bypasses its own sidecar and calls the server's sidecar directly gets no further than the policies allow.
func TestAttacks(t *testing.T) {
	a := attack(t)
	app, thief := a.identity("app"), a.identity("thief")
	const id = "spiffe://cluster.local/ns/shop/sa/app"
	forged, own := forgeries(t, id)
	claim := "x-forwarded-client-cert: By=" + url.QueryEscape(id) + ";URI=" + id
	for _, c := range []struct {
		what    string
		tls     *tls.Config
		request string
		want    int
	}{
		{"who may", as(app), get("/"), 200},
		{"a path that leads away from a forbidden one", as(app), get("/admin/../shop"), 200},
		{"plain text", nil, get("/"), 0},
		{"no certificate", as(tls.Certificate{}), get("/"), 0},
		{"the identity in a certificate of another root", as(forged), get("/"), 0},
		{"the identity in a certificate that signs itself", as(own), get("/"), 0},
		{"an account that no policy names", as(thief), get("/"), 403},
		{"the identity in a header", as(thief), get("/", claim), 403},
		{"no protocol", as(thief, offers()), get("/"), 403},
		{"the protocol of clients outside the mesh", as(thief, offers("http/1.1")), get("/"), 403},
		{"the protocol of TCP", as(thief, offers("istio")), get("/"), 403},
		{"the server name of another service", as(thief, names("outbound_.80_._.other.shop.svc.cluster.local")), get("/"), 403},
		{"a forbidden path", as(app), get("/admin"), 403},
		{"an encoded letter", as(app), get("/%61dmin"), 403},
		{"a dot", as(app), get("/./admin"), 403},
		{"two dots", as(app), get("/shop/../admin"), 403},
		{"encoded dots", as(app), get("/shop/%2e%2e/admin"), 403},
		{"an encoded slash", as(app), get("/admin%2fusers"), 403},
		{"a backslash", as(app), get(`/shop\..\admin`), 403},
		{"a query", as(app), get("/admin?x=/shop"), 403},
		{"a fragment", as(app), get("/admin#/shop"), 403},
		{"a forbidden host", as(app), "GET / HTTP/1.1\r\nHost: admin.shop\r\nConnection: close\r\n\r\n", 403},
		{"a forbidden host in capitals", as(app), "GET / HTTP/1.1\r\nHost: ADMIN.shop\r\nConnection: close\r\n\r\n", 403},
		{"a forbidden host in the request line", as(app), get("http://admin.shop/"), 403},
		{"two hosts", as(app), get("/", "Host: admin.shop"), 403},
		{"a forbidden method", as(app), "DELETE / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n", 403},
		{"two lengths", as(app), "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 0\r\nContent-Length: 40\r\n\r\n" + get("/admin"), 400},
		{"a length beside chunks", as(app), "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get("/admin"), 400},
	} {
		if got := a.send(c.tls, c.request); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	if got := a.send(as(app), get("/")); got != http.StatusOK {
		t.Errorf("after the attacks: %d", got)
	}
}

// TestHeaderAttacks: headers that a request has twice, or with several values.
func TestHeaderAttacks(t *testing.T) {
	a := attack(t)
	app := as(a.identity("app"))
	for _, c := range []struct {
		what, request string
		want          int
	}{
		{"a header", get("/", "x-role: admin"), 200},
		{"a forbidden header", get("/", "x-role: intern"), 403},
		// Envoy compares each line of a header for itself (envoy.reloadable_features.rbac_match_headers_individually), but a list in one line is
		// one value (az-case-tricks of the exam).
		{"a forbidden header twice", get("/", "x-role: intern", "x-role: intern"), 403},
		{"a forbidden header after another", get("/", "x-role: admin", "x-role: intern"), 403},
		{"a forbidden header among others", get("/", "x-role: admin", "x-role: intern", "x-role: admin"), 403},
		{"a forbidden start of a header after another", get("/", "x-role: admin", "x-role: guest7"), 403},
		{"a forbidden end of a header before another", get("/", "x-role: robot", "x-role: admin"), 403},
		{"a list in one line is another value", get("/", "x-role: admin,intern,admin"), 200},
		{"a header that is demanded", get("/vault", "x-key: gold"), 200},
		{"another value of a header that is demanded", get("/vault", "x-key: lead"), 403},
		{"a header that is demanded, in a list", get("/vault", "x-key: gold,lead"), 403},
	} {
		if got := a.send(app, c.request); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}
