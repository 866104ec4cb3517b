package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	security "istio.io/api/security/v1alpha1"

	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// secured is a control plane with TLS, and the credentials for its clients.
type secured struct {
	*controlPlane
	secure string
	roots  string // the file with the roots of the control plane
	state  statefile.Dir
	tokens *identity.LocalKey
	ended  bool
}

// end ends the control plane, unless it has ended.
func (m *secured) end() {
	m.t.Helper()
	if m.ended {
		return
	}
	m.ended = true
	if code := m.stop(); code != run.ExitDone {
		m.t.Errorf("exit %d", code)
	}
}

// startSecure starts a control plane whose state is in a folder of its own.
func startSecure(t *testing.T) *secured {
	t.Helper()
	return startPlugged(t, "")
}

// startPlugged starts one with a plugged-in authority, whose roots are in a file; with one of its own if that is empty.
func startPlugged(t *testing.T, roots string) *secured {
	t.Helper()
	m := &secured{secure: free(t), state: statefile.Dir(t.TempDir()), roots: roots}
	if roots == "" {
		m.roots = m.state.Path("root-cert.pem")
	}
	m.controlPlane = start(t, "--secureGRPCAddr="+m.secure, "--stateDir="+string(m.state), "--log_output_level=debug")
	t.Cleanup(m.end)
	m.ready()
	var err error
	if m.tokens, err = identity.OpenLocalKey(m.state); err != nil { // which the control plane has made
		t.Fatal(err)
	}
	return m
}

// token issues a token.
func (m *secured) token(namespace, account string, valid time.Duration) string {
	m.t.Helper()
	text, err := m.tokens.Issue(namespace, account, []string{identity.Audience}, time.Now(), valid)
	if err != nil {
		m.t.Fatal(err)
	}
	return text
}

// dial connects, with a certificate if there is one.
func (m *secured) dial(own *tls.Certificate) *grpc.ClientConn {
	m.t.Helper()
	roots, err := os.ReadFile(m.roots)
	if err != nil {
		m.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	c := &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"}
	if own != nil {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
	}
	conn, err := grpc.NewClient(m.secure, grpc.WithTransportCredentials(credentials.NewTLS(c)))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (m *secured) with(token string) context.Context {
	if token == "" {
		return m.t.Context()
	}
	return metadata.AppendToOutgoingContext(m.t.Context(), "authorization", "Bearer "+token)
}

// certify asks for a certificate. The signing request names another identity than the caller's.
func (m *secured) certify(conn *grpc.ClientConn, token string, valid time.Duration, extra map[string]any) (*tls.Certificate, error) {
	m.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.t.Fatal(err)
	}
	admin, _ := url.Parse("spiffe://cluster.local/ns/kube-system/sa/admin")
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{admin}}, key)
	if err != nil {
		m.t.Fatal(err)
	}
	fields, err := structpb.NewStruct(extra)
	if err != nil {
		m.t.Fatal(err)
	}
	answer, err := security.NewIstioCertificateServiceClient(conn).CreateCertificate(m.with(token), &security.IstioCertificateRequest{
		Csr:              string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
		ValidityDuration: int64(valid / time.Second), Metadata: fields,
	})
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{PrivateKey: key}
	for _, text := range answer.CertChain {
		b, rest := pem.Decode([]byte(text))
		if b == nil || len(strings.TrimSpace(string(rest))) > 0 {
			m.t.Errorf("an element is not one certificate: %q", text)
			continue
		}
		c.Certificate = append(c.Certificate, b.Bytes)
	}
	if c.Leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
		m.t.Fatal(err)
	}
	last, err := x509.ParseCertificate(c.Certificate[len(c.Certificate)-1])
	if err != nil || last.CheckSignatureFrom(last) != nil {
		m.t.Errorf("the last element is no root: %v", err)
	}
	return c, nil
}

// ask opens a stream as a proxy and returns how it ends, or nil if it is answered.
func (m *secured) ask(conn *grpc.ClientConn, token, id string, fields map[string]any) (discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, error) {
	m.t.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(m.with(token))
	if err != nil {
		return nil, err
	}
	meta, err := structpb.NewStruct(fields)
	if err != nil {
		m.t.Fatal(err)
	}
	_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: id, Metadata: meta}, TypeUrl: resource.Cluster.URL()}) // Recv has the reason
	_, err = stream.Recv()
	return stream, err
}

// ends waits until the server ends a stream. It closes the connection as well, and which of the two the client sees first is open: the
// reason, that its connection is closed, or Canceled, as gRPC reports a stream whose context the server has canceled.
func ends(t *testing.T, what string, s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) {
	t.Helper()
	var err error
	for err == nil {
		_, err = s.Recv() // until the test's context ends
	}
	if code := status.Code(err); code != codes.Unauthenticated && code != codes.Unavailable && code != codes.Canceled {
		t.Errorf("%s: the stream ended with %v", what, err)
	}
}

const webNode = "sidecar~10.9.0.1~web-1.shop~shop.svc.cluster.local"

// TestIdentity checks access: each line is a request with its credentials, and the expected outcome.
func TestIdentity(t *testing.T) {
	m := startSecure(t)
	plain := m.dial(nil)
	token := m.token("shop", "web", time.Hour)
	own, err := m.certify(plain, token, time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(own.Leaf.URIs) != 1 || own.Leaf.URIs[0].String() != "spiffe://cluster.local/ns/shop/sa/web" {
		t.Errorf("the certificate is of %v", own.Leaf.URIs)
	}
	certified := m.dial(own)
	huge := strings.Repeat("A", 10<<20)
	for _, c := range []struct {
		name      string
		conn      *grpc.ClientConn
		token, id string
		fields    map[string]any
		want      codes.Code
		reason    string
	}{
		{"a token", plain, token, webNode, nil, codes.OK, ""},
		{"a certificate", certified, "", webNode, nil, codes.OK, ""},
		{"a certificate, and its account", certified, "", webNode, map[string]any{"SERVICE_ACCOUNT": "web"}, codes.OK, ""},
		{"nothing", plain, "", webNode, nil, codes.Unauthenticated, "neither a client certificate nor a token"},
		{"another namespace by node id", plain, token, strings.ReplaceAll(webNode, "shop", "bank"), nil, codes.PermissionDenied, `namespace is "bank"`},
		{"another namespace by metadata", certified, "", webNode, map[string]any{"NAMESPACE": "bank"}, codes.PermissionDenied, `namespace is "bank"`},
		{"another namespace by node id, and its own by metadata", plain, token, strings.ReplaceAll(webNode, "shop", "bank"), map[string]any{"NAMESPACE": "shop"}, codes.PermissionDenied, `its node id has "bank"`},
		{"another account by metadata", certified, "", webNode, map[string]any{"SERVICE_ACCOUNT": "admin"}, codes.PermissionDenied, `service account is "admin"`},
		{"as the agent of another namespace", plain, token, "agent~10.9.0.1~web-1.bank~bank.svc.cluster.local", nil, codes.PermissionDenied, `namespace is "bank"`},
		{"a token that is none", plain, "password", webNode, nil, codes.Unauthenticated, "no signed token"},
		{"a token of 10 MB", plain, huge, webNode, nil, codes.Internal, ""},
	} {
		if _, err := m.ask(c.conn, c.token, c.id, c.fields); status.Code(err) != c.want && (c.want != codes.Internal || err == nil) || !strings.Contains(fmt.Sprint(err), c.reason) {
			t.Errorf("%s: %v, want %v with %q", c.name, err, c.want, c.reason)
		}
	}
	m.certificates(plain, certified)
	m.until("/metrics", func(_ int, body string) bool {
		return strings.Contains(body, "citadel_server_success_cert_issuance_count 2") && !strings.Contains(body, "citadel_server_authentication_failure_count 0")
	})
	m.hidden(token, own)
}

// certificates checks which callers get a certificate.
func (m *secured) certificates(plain, certified *grpc.ClientConn) {
	m.t.Helper()
	for _, c := range []struct {
		name   string
		conn   *grpc.ClientConn
		token  string
		extra  map[string]any
		want   codes.Code
		reason string
	}{
		{"a certificate renews itself", certified, "", nil, codes.OK, ""},
		{"nobody gets one", plain, "", nil, codes.Unauthenticated, "neither"},
		{"one of another workload", certified, "", map[string]any{"ImpersonatedIdentity": "spiffe://cluster.local/ns/bank/sa/vault"}, codes.PermissionDenied, "CA_TRUSTED_NODE_ACCOUNTS"},
		{"by another signer", certified, "", map[string]any{"CertSigner": "other"}, codes.InvalidArgument, "signer"},
	} {
		got, err := m.certify(c.conn, c.token, time.Minute, c.extra)
		if status.Code(err) != c.want || !strings.Contains(fmt.Sprint(err), c.reason) {
			m.t.Errorf("%s: %v, want %v with %q", c.name, err, c.want, c.reason)
		}
		if got != nil && got.Leaf.URIs[0].String() != "spiffe://cluster.local/ns/shop/sa/web" {
			m.t.Errorf("%s: it is of %v", c.name, got.Leaf.URIs)
		}
	}
}

// TestStreamsEndWithTheirCredentials opens streams with a token and a certificate of a few seconds: both end when these expire, and
// expired credentials open no new stream.
func TestStreamsEndWithTheirCredentials(t *testing.T) {
	m := startSecure(t)
	for _, name := range []string{"token", "certificate"} {
		var short string
		var own *tls.Certificate
		if name == "token" {
			short = m.token("shop", "web", 3*time.Second)
		} else {
			var err error
			if own, err = m.certify(m.dial(nil), m.token("shop", "web", time.Hour), 3*time.Second, nil); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		stream, err := m.ask(m.dial(own), short, webNode, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ends(t, name, stream)
		if took := time.Since(began); took < 1500*time.Millisecond { // times in both have whole seconds
			t.Errorf("%s: the stream ended after %v", name, took)
		}
		// The connection ends with the stream, so each call needs one of its own.
		if _, err := m.ask(m.dial(own), short, webNode, nil); err == nil {
			t.Errorf("%s: it is accepted after it has expired", name)
		}
	}
}

// TestRestartKeepsTheRoot: a certificate issued before a restart is accepted after it.
func TestRestartKeepsTheRoot(t *testing.T) {
	m := startSecure(t)
	own, err := m.certify(m.dial(nil), m.token("shop", "web", time.Hour), time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.end()
	again := &secured{secure: free(t), state: m.state, roots: m.roots, tokens: m.tokens}
	again.controlPlane = start(t, "--secureGRPCAddr="+again.secure, "--stateDir="+string(m.state))
	t.Cleanup(again.end)
	again.ready()
	if _, err := again.ask(again.dial(own), "", webNode, nil); err != nil {
		t.Error(err)
	}
}

// hidden looks for keys and tokens in logs and pages.
func (m *secured) hidden(token string, own *tls.Certificate) {
	m.t.Helper()
	var secrets []string
	for part := range strings.SplitSeq(token, ".") {
		secrets = append(secrets, part[:20])
	}
	for _, name := range []string{"ca.json", "token-key.pem"} {
		text, err := os.ReadFile(filepath.Join(string(m.state), name))
		if err != nil {
			m.t.Fatal(err)
		}
		at := strings.Index(string(text), "PRIVATE KEY-----") + len("PRIVATE KEY-----")
		body := strings.TrimLeft(strings.ReplaceAll(string(text[at:]), `\n`, "\n"), "\n")
		secrets = append(secrets, body[40:60])
	}
	if len(own.Certificate) == 0 || len(secrets) != 5 {
		m.t.Fatalf("%d secrets to look for", len(secrets))
	}
	places := map[string]string{"the log": m.said()}
	for _, page := range []string{"/debug/problemz", "/debug/syncz", "/debug/configz", "/debug/connections", "/debug/historyz", "/debug/cellz", "/debug/config_dump?proxyID=web-1.shop", "/metrics", "/debug/pprof/cmdline"} {
		m.until(page, func(code int, body string) bool {
			places[page] = body
			return code == http.StatusOK || code == http.StatusNotFound || code == http.StatusBadRequest
		})
	}
	for place, text := range places {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				m.t.Errorf("%s shows a key or a token", place)
			}
		}
	}
}
