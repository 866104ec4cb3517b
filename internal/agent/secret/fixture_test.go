package secret

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pilotmesh/pilot/internal/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for a change.
const patience = time.Minute

// material is a certificate that signs itself, with its key, as PEM; crl revokes nothing. The test kit's package certs is not
// used: it is in another Go module (test/kit), which the product's must not require.
type material struct{ cert, key, crl string }

func newMaterial(t testing.TB, name string, notAfter time.Time) material {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: notAfter.Add(-24 * time.Hour), NotAfter: notAfter,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, SubjectKeyId: []byte(name),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	crl, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: notAfter.Add(-time.Hour), NextUpdate: notAfter}, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return material{block(certificateBlock, der), block("PRIVATE KEY", keyDER), block("X509 CRL", crl)}
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func tomorrow() time.Time { return time.Now().Add(24 * time.Hour) }

// output is a log that tests can read while it is written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// fixture is a board with the provider of files, and a directory for these.
type fixture struct {
	*testing.T
	dir   string
	board *Board
	log   *output
}

// newFixture starts a board and its provider. change, if not nil, changes the provider before.
func newFixture(t *testing.T, change func(*Files)) *fixture {
	t.Helper()
	w := &fixture{T: t, dir: t.TempDir(), log: &output{}}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	w.board = NewBoard(log)
	files := NewFiles(w.board, log)
	if change != nil {
		change(files)
	}
	group := run.New(log, patience)
	group.Add(run.Actor{Name: "board", Run: w.board.Run})
	group.Add(run.Actor{Name: "files", Run: files.Run})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- group.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if strings.Contains(w.log.String(), "PRIVATE KEY") {
			t.Error("the log has a key in it")
		}
		if t.Failed() {
			t.Log(w.log)
		}
	})
	return w
}

func (w *fixture) path(name string) string { return filepath.Join(w.dir, name) }

// put writes a file as a whole.
func (w *fixture) put(name, text string) {
	w.Helper()
	temporary := w.path(".temporary")
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
	if err := os.Rename(temporary, w.path(name)); err != nil {
		w.Fatal(err)
	}
}

// write writes a file in place.
func (w *fixture) write(name, text string) {
	w.Helper()
	if err := os.WriteFile(w.path(name), []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// await waits until the entry of a secret has the wanted state and problem, and returns it.
func (w *fixture) await(name string, state State, problem string) Entry {
	w.Helper()
	return w.awaitThat(name, string(state)+" "+problem, func(e Entry) bool {
		return e.State == state && strings.Contains(e.Problem, problem) && (problem != "" || e.Problem == "")
	})
}

func (w *fixture) awaitThat(name, what string, check func(Entry) bool) Entry {
	w.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		view := w.board.View()
		if e, known := view.Entries[name]; known && check(e) {
			return e
		}
		select {
		case <-view.Next:
		case <-deadline.C:
			w.Fatalf("%s is not %s but %+v", name, what, w.board.View().Entries[name].status())
		}
	}
}

// roots checks that the secret is served with this content.
func (w *fixture) roots(name, text string) Entry {
	w.Helper()
	want, err := makeRoots(name, "", []byte(text), nil)
	if err != nil {
		w.Fatal(err)
	}
	return w.awaitThat(name, "this file", func(e Entry) bool { return e.State == StateServed && e.version == want.version })
}
