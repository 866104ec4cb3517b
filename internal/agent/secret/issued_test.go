package secret

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pilotmesh/pilot/internal/security/ca"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// authority answers requests as a test says.
type authority struct {
	mu    sync.Mutex
	asked int
	roots ca.Kept
	fault string
}

func newRoots(t *testing.T) ca.Kept {
	t.Helper()
	kept, err := ca.Roots{Organization: "cluster.local", Valid: 10000 * time.Hour}.First(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func (a *authority) set(fault string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fault = fault
}

func (a *authority) answer(ctx context.Context, t *testing.T, csr string) ([]string, error) {
	a.mu.Lock()
	a.asked++
	fault, roots := a.fault, a.roots
	a.mu.Unlock()
	key, err := ca.PublicKey(csr)
	if err != nil {
		return nil, err
	}
	id, now, valid := identity.Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}, time.Now(), time.Hour
	switch fault {
	case "unreachable":
		return nil, errors.New("connection refused")
	case "slow":
		<-ctx.Done()
		return nil, ctx.Err()
	case "another root":
		roots = newRoots(t)
	case "another account":
		id.ServiceAccount = "admin"
	case "another namespace":
		id.Namespace = "bank"
	case "expired":
		now = now.Add(-2 * valid)
	case "nothing":
		return nil, nil
	case "another key":
		other, err := (&Issued{o: IssueOptions{Curve: nil, RSABits: 2048}}).newKey()
		if err != nil {
			return nil, err
		}
		key = other.Public()
	case "nonsense":
		return []string{string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))}, nil
	}
	signer, err := ca.NewAuthority(roots.Material(), time.Now())
	if err != nil {
		return nil, err
	}
	chain, err := signer.Issue(key, ca.Subject{Identity: id}, valid, now)
	if fault == "no root" && err == nil {
		chain = chain[:1]
	}
	return chain, err
}

// TestFaultsOfTheAuthority: whatever the authority does, Envoy has an answer, and keeps a certificate that is good.
func TestFaultsOfTheAuthority(t *testing.T) {
	for fault, want := range map[string]string{
		"unreachable": "connection refused", "slow": "deadline", "another root": "none of the roots that the mesh has trusted",
		"another account": "service account \"web\"", "another namespace": "namespace \"shop\"", "expired": "expired",
		"nothing": "0 certificates", "another key": "another key", "nonsense": "cannot be read", "no root": "0 roots",
	} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { faulty(t, fault, want) })
		})
	}
}

func faulty(t *testing.T, fault, want string) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	a := &authority{roots: newRoots(t)}
	if fault != "another root" { // the first root cannot be compared with another one
		a.set(fault)
	}
	board, output := NewBoard(logger), t.TempDir()
	i := NewIssued(board, IssueOptions{
		TrustDomain: "cluster.local", Namespace: "shop", Account: "web", Valid: time.Hour, Grace: 0.5, Output: output, Log: logger,
		Request: func(ctx context.Context, csr string, _ time.Duration) ([]string, error) { return a.answer(ctx, t, csr) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = board.Run(ctx) })
	running.Go(func() { _ = i.Run(ctx) })
	defer func() { cancel(); running.Wait() }()
	board.want([]string{workload, meshRoots}, nil)
	synctest.Wait()
	after := func(d time.Duration) map[string]Entry {
		timer := time.NewTimer(d)
		<-timer.C
		synctest.Wait()
		return board.View().Entries
	}
	atTheStart(t, after, fault, want)
	a.set("")
	first := after(time.Minute)[workload]
	if first.State != StateServed || board.View().Entries[meshRoots].State != StateServed {
		t.Fatalf("there is no certificate when the authority is well: %s %q", first.State, first.Problem)
	}
	a.set(fault)
	kept := after(35 * time.Minute)[workload] // it is renewed after half an hour
	if kept.State != StateKept || kept.version != first.version || !strings.Contains(kept.Problem, want) {
		t.Errorf("the certificate that is good is %s, %q; want %q", kept.State, kept.Problem, want)
	}
	if roots := board.View().Entries[meshRoots]; roots.State != StateServed {
		t.Errorf("the roots are %s", roots.State)
	}
	a.mu.Lock()
	if a.asked > 200 {
		t.Errorf("%d requests", a.asked)
	}
	a.mu.Unlock()
	a.set("")
	if again := after(time.Minute)[workload]; again.State != StateServed || again.version == first.version || again.Problem != "" {
		t.Errorf("it does not heal: %s %q", again.State, again.Problem)
	}
	written, err := os.ReadFile(filepath.Join(output, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.Split(string(written), "\n")[1]
	if text := log.String() + fmt.Sprintf("%+v %#v", board.View().Entries, board.Secrets()); strings.Contains(text, secret) {
		t.Error("a log or page shows the key")
	}
}

// atTheStart checks the answer that Envoy gets after a fault before there is a certificate.
func atTheStart(t *testing.T, after func(time.Duration) map[string]Entry, fault, want string) {
	t.Helper()
	if fault == "another root" {
		return
	}
	for _, name := range []string{workload, meshRoots} {
		if e := after(impatience)[name]; e.State != StateMissing || e.Problem == "" {
			t.Errorf("at the start Envoy is told nothing about %s: %s %q", name, e.State, e.Problem)
		}
	}
	if e := after(answerWithin)[workload]; !strings.Contains(e.Problem, want) {
		t.Errorf("at the start the problem is %q, want %q", e.Problem, want)
	}
}

// TestRootsChange: when the authority announces a root, Envoy gets all, and then a certificate of the new one is used.
func TestRootsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{roots: newRoots(t)}
		board := NewBoard(slog.New(slog.DiscardHandler))
		i := NewIssued(board, IssueOptions{
			TrustDomain: "cluster.local", Namespace: "shop", Valid: time.Hour, Grace: 0.5, RSABits: 2048, Log: slog.New(slog.DiscardHandler),
			Request: func(ctx context.Context, csr string, _ time.Duration) ([]string, error) { return a.answer(ctx, t, csr) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = board.Run(ctx) })
		running.Go(func() { _ = i.Run(ctx) })
		defer func() { cancel(); running.Wait() }()
		board.want([]string{workload, meshRoots}, nil)
		next := newRoots(t)
		counts := []int{}
		for step := range 3 {
			timer := time.NewTimer(40 * time.Minute)
			<-timer.C
			synctest.Wait()
			counts = append(counts, bytes.Count(i.Roots(), []byte("BEGIN CERTIFICATE")))
			if e := board.View().Entries[workload]; e.State != StateServed {
				t.Fatalf("step %d: %s %q", step, e.State, e.Problem)
			}
			if _, err := i.Certificate().Leaf.Verify(x509.VerifyOptions{Roots: poolOf(i.Roots()), CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
				t.Fatal(err)
			}
			a.mu.Lock()
			switch step {
			case 0:
				a.roots.NextCert, a.roots.NextKey = next.Cert, next.Key
			case 1:
				a.roots = ca.Kept{Cert: next.Cert, Key: next.Key, Former: a.roots.Cert}
			}
			a.mu.Unlock()
		}
		if fmt.Sprint(counts) != "[1 2 2]" {
			t.Errorf("Envoy has %v roots, want [1 2 2]", counts)
		}
	})
}

// TestTrust: Envoy and the folder get the roots of a trust bundle besides the authority's, until there is another bundle. A bundle that
// cannot be used changes nothing, and the agent trusts its own roots only.
func TestTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, output := &authority{roots: newRoots(t)}, t.TempDir()
		board := NewBoard(slog.New(slog.DiscardHandler))
		i := NewIssued(board, IssueOptions{
			TrustDomain: "cluster.local", Namespace: "shop", Valid: time.Hour, Grace: 0.5, Output: output, Log: slog.New(slog.DiscardHandler),
			Request: func(ctx context.Context, csr string, _ time.Duration) ([]string, error) { return a.answer(ctx, t, csr) },
		})
		first, second := string(newRoots(t).Cert), string(newRoots(t).Cert)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer func() { cancel(); running.Wait() }()
		trust := func(want int, texts ...string) {
			t.Helper()
			err := i.Trust(texts)
			timer := time.NewTimer(time.Second)
			<-timer.C
			synctest.Wait()
			written, readErr := os.ReadFile(filepath.Join(output, "trust-bundle.pem"))
			own, ownErr := os.ReadFile(filepath.Join(output, "root-cert.pem"))
			roots := board.View().Entries[meshRoots].resource.GetValue()
			for _, text := range [][]byte{written, roots} {
				if got := bytes.Count(text, []byte("BEGIN CERTIFICATE")); got != want || readErr != nil {
					t.Errorf("%d roots, want %d: %v, %v", got, want, err, readErr)
				}
			}
			if bytes.Count(i.Roots(), []byte("BEGIN")) != 1 || bytes.Count(own, []byte("BEGIN")) != 1 || ownErr != nil {
				t.Errorf("the agent trusts other roots, or its file has them: %v", ownErr)
			}
		}
		if err := i.Trust([]string{first}); err != nil { // before there is a certificate
			t.Fatal(err)
		}
		running.Go(func() { _ = board.Run(ctx) })
		running.Go(func() { _ = i.Run(ctx) })
		board.want([]string{workload, meshRoots}, nil)
		trust(3, first, second)
		trust(3, first, "nonsense")
		trust(3, first+"-----BEGIN X-----\n-----END X-----\n")
		trust(2, second)
		renewed := time.NewTimer(time.Hour)
		<-renewed.C
		trust(2, second)
		trust(1)
	})
}

func poolOf(text []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}
