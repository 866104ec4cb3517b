package agent

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/testbed"
)

// bundleOf is a SPIFFE bundle with the root of an authority, beside a key of tokens.
func bundleOf(t *testing.T, a *certs.Authority) string {
	t.Helper()
	block, _ := pem.Decode([]byte(a.Pair().Cert))
	if block == nil {
		t.Fatal("there is no PEM")
	}
	return fmt.Sprintf(`{"keys":[{"use":"jwt-svid","kid":"x","kty":"EC"},{"use":"x509-svid","kty":"EC","x5c":["%s"]}],"spiffe_sequence":1}`,
		base64.StdEncoding.EncodeToString(block.Bytes))
}

// serveBundle is an endpoint with a certificate of an authority. It fails until there is an answer, which the function sets.
func serveBundle(t *testing.T, of *certs.Authority) (from string, answer func(string)) {
	t.Helper()
	pair, err := of.Issue(certs.Identity{Name: "endpoint", IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	if err != nil {
		t.Fatal(err)
	}
	own, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}})
	if err != nil {
		t.Fatal(err)
	}
	var body atomic.Value
	body.Store("")
	server := &http.Server{ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if body.Load() == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, body.Load())
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return fmt.Sprintf("https://127.0.0.1:%d/bundle", l.Addr().(*net.TCPAddr).Port), func(text string) { body.Store(text) }
}

// TestSpiffeBundle: the control plane fetches a SPIFFE bundle over HTTPS, and workloads accept clients of the authority in it, and of no other. While
// the endpoint fails, a problem has its address and the error. The roots of the bundle stay in force when the control plane is started again then.
func TestSpiffeBundle(t *testing.T) {
	web, other, stranger := newAuthority(t, "web"), newAuthority(t, "other"), newAuthority(t, "stranger")
	from, answer := serveBundle(t, web)
	b := newBed(t)
	b.Args = []string{"--meshConfig=" + write(t, "mesh.yaml", "caCertificates: [{spiffeBundleUrl: "+from+"}]\n")}
	b.Env = []string{"SSL_CERT_FILE=" + write(t, "roots.pem", web.Pair().Cert)} // the authorities of the system
	b.TLSOnly()
	b.serve()
	b.reported("bundle-unknown", "the SPIFFE bundle "+from+" cannot be fetched, so its roots are not trusted: the answer has status 503")
	answer(bundleOf(t, other))
	b.await("the end of the problem", func(ctx context.Context) error {
		problems, err := b.Problems(ctx)
		if err == nil && strings.Contains(strings.Join(problems, "\n"), "bundle-unknown") {
			err = fmt.Errorf("there are %q", problems)
		}
		return err
	})
	answer("")
	b.Discovery.Stop()
	b.serve()
	b.reported("bundle-stale", "its last good roots stay in force")

	control := newHandmade(t)
	control.set(listenerType, "web", fmt.Sprintf(mutualTLS, listenerType, b.port))
	o := b.certified("web")
	o.Args = append(o.Args, "--controlPlaneAuthPolicy=NONE")
	o.Env = append(o.Env, "CA_ADDR="+b.Secure)
	a, err := testbed.StartAgent(o, t.TempDir(), testbed.Node{Name: "app", Namespace: "shop", Discovery: control.address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	if err := a.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for of, want := range map[*certs.Authority]bool{other: true, stranger: false} {
		client, err := of.Issue(certs.Identity{URIs: []string{"spiffe://other/ns/a/sa/b"}})
		if err != nil {
			t.Fatal(err)
		}
		b.accepts(client, want)
	}
}
