package ca

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pilotmesh/pilot/internal/run/statefile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a keeper that runs.
type running struct {
	*Keeper
	mu       sync.Mutex
	problems []string
}

func (r *running) report(problems []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = problems
}

func (r *running) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.problems, "\n")
}

func keep(t *testing.T, s Settings) *running {
	t.Helper()
	r := &running{}
	s.Roots.Organization, s.Names, s.Now = "cluster.local", []string{"localhost", "127.0.0.1"}, time.Now
	s.Log, s.Report = slog.New(slog.DiscardHandler), r.report
	if s.Limits == (Limits{}) {
		s.Limits = Limits{Default: time.Hour, Max: time.Hour}
	}
	if s.Check == 0 {
		s.Check = time.Hour
	}
	r.Keeper = NewKeeper(s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-r.Ready():
	case err := <-done:
		t.Fatal("the keeper ended: ", err)
	case <-time.After(20 * time.Second):
		t.Fatal("the keeper is not ready")
	}
	return r
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-limit:
			t.Fatal("it never happened that ", what)
		}
	}
}

// TestFollowsItsFolder replaces a plugged-in authority while it runs: a new one of the same root is used at once, one that is broken or
// of an unknown root is refused, with a problem, and the last good one stays in force.
func TestFollowsItsFolder(t *testing.T) {
	now := time.Now()
	dir, l := t.TempDir(), layouts()[0]
	root, next := selfSigned(t, time.Hour, 0, now), selfSigned(t, time.Hour, 0, now)
	plug(t, dir, root, l, now)
	k := keep(t, Settings{Folder: Folder(dir)})
	first := k.Authority()

	plug(t, dir, root, l, now)
	eventually(t, "the new authority signs", func() bool { return !k.Authority().cert.Equal(first.cert) })
	second := k.Authority()

	if err := os.WriteFile(filepath.Join(dir, l.key), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a broken key is a problem", func() bool { return strings.Contains(k.said(), "certificate and key") })
	plug(t, dir, next, l, now)
	eventually(t, "an unknown root is a problem", func() bool { return strings.Contains(k.said(), "first put the new root") })
	if k.Authority() != second {
		t.Error("the last good authority is gone")
	}

	plug(t, dir, root, l, now, next) // both are trusted
	eventually(t, "both roots are trusted", func() bool { return len(k.Authority().roots) == 2 && k.said() == "" })
	plug(t, dir, next, l, now, root)
	eventually(t, "the new root signs", func() bool { return k.Authority().roots[1].Equal(next.cert) && k.said() == "" })
}

// place is where an authority is plugged in.
type place struct {
	atomic.Pointer[map[string][]byte]
	err atomic.Pointer[error]
}

func (p *place) Files(context.Context) (map[string][]byte, error) {
	if err := p.err.Load(); err != nil {
		return nil, *err
	}
	if files := p.Load(); files != nil {
		return *files, nil
	}
	return nil, fs.ErrNotExist
}

// TestFindsItsPlace: an authority that is plugged in elsewhere is used if the folder has none, and one of its own is made only if it is
// certain that there is none.
func TestFindsItsPlace(t *testing.T) {
	now := time.Now()
	dir, kept := t.TempDir(), File{statefile.Dir(t.TempDir())}
	root := selfSigned(t, time.Hour, 0, now)
	plug(t, dir, root, layouts()[0], now)
	m, err := Folder(dir).Files(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var is place
	is.Store(&m)
	if k := keep(t, Settings{Folder: Folder(t.TempDir()), Plug: &is, Store: kept}); !k.Authority().roots[0].Equal(root.cert) {
		t.Error("the authority that is plugged in is not used")
	}
	is.Store(nil)
	if k := keep(t, Settings{Folder: Folder(dir), Plug: &is, Store: kept}); !k.Authority().roots[0].Equal(root.cert) {
		t.Error("the authority in the folder is not used")
	}
	if k := keep(t, Settings{Plug: &is, Store: kept, Roots: Roots{Valid: time.Hour, Grace: 20}}); k.Authority().roots[0].Equal(root.cert) {
		t.Error("an authority is used that is not plugged in any more")
	}
	refused := errors.New("it may not be read")
	is.err.Store(&refused)
	k := NewKeeper(Settings{Plug: &is, Store: kept, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err := k.Run(t.Context()); !errors.Is(err, refused) {
		t.Errorf("a place that cannot be read: %v", err)
	}
}

// connect makes a TLS connection to a server of the keeper, and returns what the server sees.
func connect(t *testing.T, k *Keeper, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", k.TLS())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type result struct {
		state tls.ConnectionState
		err   error
	}
	served := make(chan result, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			served <- result{err: err}
			return
		}
		defer c.Close()
		err = c.(*tls.Conn).HandshakeContext(t.Context())
		served <- result{c.(*tls.Conn).ConnectionState(), err}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	own := tls.Client(c, client)
	failed := own.HandshakeContext(t.Context())
	if failed != nil {
		c.Close()
	}
	got := <-served
	if got.err == nil {
		got.err = failed
	}
	return got.state, got.err
}

// TestConnections: a certificate of the mesh is accepted, none, too; a revoked one and one of another mesh are not.
func TestConnections(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	root, foreign := selfSigned(t, time.Hour, 0, now), selfSigned(t, time.Hour, 0, now)
	plug(t, dir, root, layouts()[0], now)
	k := keep(t, Settings{Folder: Folder(dir)})
	pair := func(a *Authority) *tls.Certificate {
		key := ecKey(t)
		chain, err := a.Issue(&key.PublicKey, Subject{Identity: reviews}, time.Minute, now)
		if err != nil {
			t.Fatal(err)
		}
		c := &tls.Certificate{PrivateKey: key}
		for _, text := range chain[:len(chain)-1] {
			b, _ := pem.Decode([]byte(text))
			c.Certificate = append(c.Certificate, b.Bytes)
		}
		return c
	}
	config := func(c *tls.Certificate) *tls.Config {
		t := &tls.Config{RootCAs: k.Authority().Pool(), ServerName: "127.0.0.1"}
		if c != nil {
			t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c, nil }
		}
		return t
	}
	good := pair(k.Authority())
	if state, err := connect(t, k.Keeper, config(good)); err != nil || len(state.VerifiedChains) == 0 {
		t.Errorf("a certificate of the mesh: %v", err)
	}
	if state, err := connect(t, k.Keeper, config(nil)); err != nil || len(state.PeerCertificates) > 0 {
		t.Errorf("no certificate: %v", err)
	}
	if _, err := connect(t, k.Keeper, config(pair(foreign))); err == nil {
		t.Error("a certificate of another mesh is accepted")
	}
	old := config(nil)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, err := connect(t, k.Keeper, old); err == nil {
		t.Error("TLS 1.1 is accepted")
	}
	leaf, err := x509.ParseCertificate(good.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	crl, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: now, NextUpdate: now.Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: leaf.SerialNumber, RevocationTime: now}},
	}, k.Authority().cert, k.Authority().signer)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca-crl.pem"), pem.EncodeToMemory(&pem.Block{Type: crlBlock, Bytes: crl}), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the list is read", func() bool { return len(k.Authority().crls) == 1 })
	if _, err := connect(t, k.Keeper, config(good)); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("a revoked certificate: %v", err)
	}
}

// TestServingIsRenewed: the certificate of the control plane is replaced before it expires: each new connection is good. It lives for four
// seconds, and is used for two at most: certificates have whole seconds, and a busy machine may be a second late.
func TestServingIsRenewed(t *testing.T) {
	k := keep(t, Settings{
		Store: File{statefile.Dir(t.TempDir())}, Roots: Roots{Valid: time.Hour, Grace: 1, Spread: time.Second}, Limits: Limits{Default: time.Second, Max: 4 * time.Second},
	})
	pool, shown := k.Authority().Pool(), map[string]bool{}
	eventually(t, "three certificates are shown", func() bool {
		var serial string
		client := &tls.Config{RootCAs: pool, ServerName: "localhost", VerifyConnection: func(s tls.ConnectionState) error {
			serial = s.PeerCertificates[0].SerialNumber.String()
			return nil
		}}
		if _, err := connect(t, k.Keeper, client); err != nil {
			t.Fatalf("after %d certificates: %v", len(shown), err)
		}
		shown[serial] = true
		return len(shown) == 3
	})
}

// TestSelfSignedChangesItsRoot runs a keeper whose root lives for three seconds: its certificate is always trusted by
// clients that trust the roots of before, and another keeper of the same folder follows.
func TestSelfSignedChangesItsRoot(t *testing.T) {
	s := Settings{
		Store: File{statefile.Dir(t.TempDir())}, Roots: Roots{Valid: 4 * time.Second, Grace: 60, Spread: time.Second},
		Limits: Limits{Default: time.Second, Max: time.Second}, Check: 50 * time.Millisecond,
	}
	a, b := keep(t, s), keep(t, s)
	if !a.Authority().cert.Equal(b.Authority().cert) {
		t.Fatal("two replicas begin with different roots")
	}
	seen := map[string]bool{}
	trusted := a.Authority().Pool()
	eventually(t, "three roots have signed", func() bool {
		now := a.Authority()
		if _, err := now.cert.Verify(x509.VerifyOptions{Roots: trusted, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			t.Fatalf("a root signs that was not trusted before: %v", err)
		}
		trusted = now.Pool()
		seen[now.cert.Subject.SerialNumber] = true
		return len(seen) >= 3
	})
	eventually(t, "the other replica follows", func() bool { return a.Authority().cert.Equal(b.Authority().cert) })
}

// TestBadFolderAtTheStart: an authority that is plugged in and cannot be used ends the keeper. It must not sign with a root of its own.
func TestBadFolderAtTheStart(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca-key.pem"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := NewKeeper(Settings{Folder: Folder(dir), Store: File{statefile.Dir(t.TempDir())}, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err := k.Run(t.Context()); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("it ends with %v", err)
	}
}
