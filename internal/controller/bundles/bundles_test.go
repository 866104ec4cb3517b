package bundles

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pilotmesh/pilot/internal/controller/keys"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
)

// certificate is a certificate that signs itself: in base64, as in a bundle, and as PEM.
func certificate(t testing.TB, authority bool) (x5c, text string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: authority, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// bundleOf is a bundle with roots.
func bundleOf(x5c ...string) string {
	var list []string
	for _, one := range x5c {
		list = append(list, fmt.Sprintf(`{"use":"x509-svid","kty":"EC","crv":"P-256","x":"a","y":"b","x5c":["%s"]}`, one))
	}
	return `{"spiffe_sequence":1,"spiffe_refresh_hint":300,"keys":[` + strings.Join(list, ",") + `]}`
}

// TestParse checks which bundles are valid, and that errors quote nothing.
func TestParse(t *testing.T) {
	a, rootA := certificate(t, true)
	b, rootB := certificate(t, true)
	leaf, _ := certificate(t, false)
	for _, c := range []struct{ name, body, roots, failure string }{
		{"one root", bundleOf(a), rootA, ""},
		{"two roots", bundleOf(a, b), rootA + rootB, ""},
		{"a key of tokens beside it", `{"keys":[{"use":"jwt-svid","kid":"x","kty":"EC"},{"use":"x509-svid","x5c":["` + a + `"]}]}`, rootA, ""},
		{"an unknown use beside it", `{"keys":[{"use":"other","x5c":["nonsense"]},{"use":"x509-svid","x5c":["` + a + `"]}]}`, rootA, ""},
		{"keys of tokens alone", `{"keys":[{"use":"jwt-svid","kid":"x"}]}`, "", "no key has the use x509-svid"},
		{"no use", `{"keys":[{"x5c":["` + a + `"]}]}`, "", "no key has the use x509-svid"},
		{"empty", `{"keys":[]}`, "", "has no root"},
		{"two certificates in a key", `{"keys":[{"use":"x509-svid","x5c":["` + a + `","` + b + `"]}]}`, "", "keys[0].x5c of the bundle has 2 certificates"},
		{"no certificate in a key", `{"keys":[{"use":"x509-svid"}]}`, "", "keys[0].x5c of the bundle has 0 certificates"},
		{"one bad root", bundleOf(a, "c2VjcmV0"), "", "keys[1].x5c of the bundle: it is no certificate"},
		{"no base64", bundleOf("secret!"), "", "it is no base64"},
		{"a certificate of a workload", bundleOf(leaf), "", "not one of an authority"},
		{"a page", "<html>secret</html>", "", "no SPIFFE bundle"},
		{"a list", `{"keys":"secret"}`, "", "no SPIFFE bundle"},
		{"PEM", rootA, "", "no SPIFFE bundle"},
		{"two documents", bundleOf(a) + bundleOf(b), "", "no SPIFFE bundle"},
		{"many roots", bundleOf(slices.Repeat([]string{a}, maxRoots+1)...), "", "more than 100 roots"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parse([]byte(c.body))
			roots := got.roots
			if roots != c.roots || (err == nil) != (c.failure == "") || err != nil && !strings.Contains(err.Error(), c.failure) {
				t.Errorf("%q, %v; want %q, %q", roots, err, c.roots, c.failure)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error quotes the answer: %v", err)
			}
		})
	}
}

// TestRefreshHint checks when a bundle is fetched again: when its author asks for it, within bounds, and after half an hour if he asks for nothing
// that makes sense, which is no reason to refuse the bundle.
func TestRefreshHint(t *testing.T) {
	x5c, _ := certificate(t, true)
	for _, c := range []struct {
		hint string
		want time.Duration
	}{
		{"", refresh}, {`"spiffe_refresh_hint":300,`, 5 * time.Minute}, {`"spiffe_refresh_hint":86400,`, 24 * time.Hour},
		{`"spiffe_refresh_hint":10,`, 10 * time.Second}, {`"spiffe_refresh_hint":1,`, 10 * time.Second}, {`"spiffe_refresh_hint":0.001,`, 10 * time.Second},
		{`"spiffe_refresh_hint":86401,`, 24 * time.Hour}, {`"spiffe_refresh_hint":1e300,`, 24 * time.Hour},
		{`"spiffe_refresh_hint":0,`, refresh}, {`"spiffe_refresh_hint":-5,`, refresh}, {`"spiffe_refresh_hint":"300",`, refresh},
		{`"spiffe_refresh_hint":null,`, refresh}, {`"spiffe_refresh_hint":{},`, refresh},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, err := parse([]byte(`{` + c.hint + `"keys":[{"use":"x509-svid","x5c":["` + x5c + `"]}]}`))
			if err != nil {
				t.Fatalf("%s: %v", c.hint, err)
			}
			m, from := newMesh(nil), "https://spire.example.com/bundle"
			m.follow([]string{from})
			if is := m.finish(from, a, nil); is != c.want {
				t.Errorf("%s: the next fetch is after %v, want %v", c.hint, is, c.want)
			}
			if is := m.finish(from, answer{}, errors.New("gone")); is != c.want {
				t.Errorf("%s: the next attempt is after %v at most, although the bundle is fetched every %v", c.hint, is, c.want)
			}
		})
	}
}

// FuzzParse checks that whatever an endpoint answers is refused, or has only certificates of authorities.
func FuzzParse(f *testing.F) {
	a, _ := certificate(f, true)
	f.Add([]byte(bundleOf(a)))
	f.Add([]byte(bundleOf(a, "x")))
	f.Add([]byte(`{"keys":[{"use":"x509-svid","x5c":[null]}]}`))
	f.Add([]byte(`{"spiffe_refresh_hint":1e300,"keys":[]}`))
	f.Add([]byte(`{"keys":[null,{"use":"X509-SVID","x5c":{}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := parse(body)
		roots := got.roots
		if got.refresh != 0 && (got.refresh < shortestRefresh || got.refresh > longestRefresh) {
			t.Fatalf("fetched again after %v", got.refresh)
		}
		if (err == nil) != (roots != "") {
			t.Fatalf("%q, %v", roots, err)
		}
		for rest := []byte(roots); len(rest) > 0; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				t.Fatalf("no PEM: %q", roots)
			}
			if c, err := x509.ParseCertificate(block.Bytes); err != nil || !c.IsCA {
				t.Fatalf("accepted: %v, %v", c, err)
			}
		}
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("a long error: %v", err)
		}
	})
}

// mesh is a fetcher whose batches go into tables.
type mesh struct {
	*Fetcher
	tables *state.Tables
}

// Apply implements source.Sink.
func (m *mesh) Apply(b source.Batch) {
	tx := m.tables.DB.Begin()
	m.tables.Apply(tx, b)
	tx.Commit()
}

func newMesh(client Client) *mesh {
	m := &mesh{tables: state.New(state.Options{})}
	m.Fetcher = &Fetcher{Sink: m, Client: client, Log: slog.New(slog.DiscardHandler)}
	m.prepare()
	return m
}

// finish takes in the result of a fetch, as the running fetcher does.
func (m *mesh) finish(from string, a answer, err error) time.Duration {
	return m.done(from, &m.fetches.Wanted[from].State, a, err)
}

// fetchNow fetches a bundle, and takes in the result.
func (m *mesh) fetchNow(t *testing.T, from string) {
	t.Helper()
	a, err := m.fetch(t.Context(), from)
	m.finish(from, a, err)
}

// reported returns the problems that the tables have.
func (m *mesh) reported() (list []string) {
	problems, _ := m.tables.SourceProblems.Peek(Name)
	for _, p := range problems.All() {
		list = append(list, string(p.Code)+": "+p.Reason)
	}
	return list
}

// endpoint is an endpoint of bundles. The address of its clients' trust is the pool of the test server.
type endpoint struct {
	*httptest.Server
	body  atomic.Value // string; empty for a failure
	asked atomic.Int64
}

func serve(t *testing.T) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.body.Store("")
	mux := http.NewServeMux()
	mux.HandleFunc("/bundle", func(w http.ResponseWriter, _ *http.Request) {
		e.asked.Add(1)
		if e.body.Load() == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, e.body.Load())
	})
	e.Server = httptest.NewTLSServer(mux)
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(e.Certificate())
	return pool
}

// TestLastGoodKept checks that the roots of a bundle are known after an answer of a real server, that they stay when the endpoint fails, answers
// with something else or with a broken bundle, and that a bundle that is no longer named is forgotten.
func TestLastGoodKept(t *testing.T) {
	a, rootA := certificate(t, true)
	b, rootB := certificate(t, true)
	e := serve(t)
	m, from := newMesh(keys.NewClient(keys.Options{Local: true, Roots: e.pool()})), e.URL+"/bundle"
	m.follow([]string{from})
	for _, step := range []struct{ body, roots, problem string }{
		{"", "", "bundle-unknown: caCertificates of the mesh configuration: the SPIFFE bundle " + from + " cannot be fetched, so its roots are not trusted: the answer has status 503"},
		{bundleOf(a), rootA, ""},
		{"", rootA, "bundle-stale: caCertificates of the mesh configuration: the SPIFFE bundle " + from + " cannot be fetched any more, and its last good roots stay in force: the answer has status 503"},
		{"<html>", rootA, "bundle-stale: "},
		{bundleOf(a, "c2VjcmV0"), rootA, "keys[1].x5c of the bundle: it is no certificate"},
		{bundleOf(b), rootB, ""},
		{strings.Repeat(" ", maxBundle) + bundleOf(a), rootB, "the answer has more than 1048576 bytes"},
	} {
		e.body.Store(step.body)
		m.fetchNow(t, from)
		got := m.reported()
		if m.tables.Security.PresentBundle(from) != step.roots || len(got) > 1 || (len(got) == 1) != (step.problem != "") || len(got) == 1 && !strings.Contains(got[0], step.problem) {
			t.Errorf("after %.40q: roots %q, problems %q; want %q, %q", step.body, m.tables.Security.PresentBundle(from), got, step.roots, step.problem)
		}
	}
	m.follow(nil)
	if len(m.reported()) > 0 || m.tables.Security.PresentBundle(from) != "" || len(m.fetches.Wanted) > 0 {
		t.Errorf("a bundle that nothing names: %q, %q", m.reported(), m.tables.Security.PresentBundle(from))
	}
}

// TestEndpoints checks that an endpoint must show a certificate of a trusted authority, and which addresses are not asked.
func TestEndpoints(t *testing.T) {
	e := serve(t)
	x5c, _ := certificate(t, true)
	e.body.Store(bundleOf(x5c))
	for _, c := range []struct {
		name    string
		client  *keys.Client
		from    string
		failure string
	}{
		{"unknown authority", keys.NewClient(keys.Options{Local: true}), e.URL + "/bundle", "certificate"},
		{"loopback in a cluster", keys.NewClient(keys.Options{Roots: e.pool()}), e.URL + "/bundle", "fetches nothing from (loopback"},
		{"metadata service", keys.NewClient(keys.Options{Local: true, Roots: e.pool()}), "https://169.254.169.254/bundle", "fetches nothing from (loopback"},
		{"no such path", keys.NewClient(keys.Options{Local: true, Roots: e.pool()}), e.URL + "/other", "status 404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.asked.Store(0)
			m := newMesh(c.client)
			m.follow([]string{c.from})
			m.fetchNow(t, c.from)
			if got := m.reported(); len(got) != 1 || !strings.HasPrefix(got[0], "bundle-unknown: ") || !strings.Contains(got[0], c.failure) || e.asked.Load() > 0 || m.tables.Security.PresentBundle(c.from) != "" {
				t.Errorf("%q, asked %d times; want %q", got, e.asked.Load(), c.failure)
			}
		})
	}
}

// TestRefused checks that addresses other than of HTTPS, and bundles beyond the limit, are not fetched, and are fetched when there is room.
func TestRefused(t *testing.T) {
	m := newMesh(nil)
	names := []string{"http://spire.example.com/bundle", "https:///bundle", "file:///etc/passwd"}
	m.follow(names)
	if got := m.reported(); len(got) != len(names) || !strings.Contains(got[0], "not one of HTTPS") {
		t.Errorf("%q", got)
	}
	names = nil
	for i := range maxBundles + 1 {
		names = append(names, fmt.Sprintf("https://spire-%02d.example.com/", i))
	}
	m.follow(names)
	if got := m.reported(); len(got) != 1 || !strings.Contains(got[0], "more than 32 bundles") {
		t.Errorf("%q", got)
	}
	m.follow(names[1:])
	if got := m.reported(); len(got) != 0 {
		t.Errorf("there is room: %q", got)
	}
	if got := shown("https://user:secret@spire.example.com/bundle?token=secret"); strings.Contains(got, "secret") {
		t.Errorf("shown as %s", got)
	}
}
