package secret

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keeper is a provider that keeps its certificate in a folder.
func keeper(t *testing.T, a *authority, dir, account string) *Issued {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	return NewIssued(NewBoard(log), IssueOptions{
		TrustDomain: "cluster.local", Namespace: "shop", Account: account, Valid: time.Hour, Grace: 0.5, Output: dir, Log: log,
		Request: func(ctx context.Context, csr string, _ time.Duration) ([]string, error) { return a.answer(ctx, t, csr) },
	})
}

// kept makes a folder in which an agent has kept its certificate.
func kept(t *testing.T, a *authority) (dir string, first *Issued) {
	t.Helper()
	dir = t.TempDir()
	first = keeper(t, a, dir, "web")
	r := first.obtain(t.Context())
	if r.err != nil {
		t.Fatal(r.err)
	}
	first.held.Store(r.held)
	first.write(r.held)
	return dir, first
}

// TestKept: an agent has the certificate again that an earlier one has kept, whatever one of the files has come to.
func TestKept(t *testing.T) {
	for name, spoil := range map[string]map[string]string{
		"as written": nil, "another key": {keyFile: "x"}, "torn": {wholeFile: "-----BEGIN"}, "no roots": {rootsFile: ""}, "no whole file": {wholeFile: ""},
		"the whole file alone": {keyFile: "", chainFile: "", rootsFile: ""},
	} {
		dir, first := kept(t, &authority{roots: newRoots(t)})
		for file, text := range spoil {
			path := filepath.Join(dir, file)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if text == "" {
				continue
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		again := keeper(t, &authority{}, dir, "web")
		if c := again.Certificate(); c == nil || !bytes.Equal(c.Certificate[0], first.Certificate().Certificate[0]) || !bytes.Equal(again.Roots(), first.Roots()) {
			t.Errorf("%s: the certificate is not the one that was kept", name)
		}
	}
}

// TestKeptRefused: what is kept and not good any more is not used, with the reason.
func TestKeptRefused(t *testing.T) {
	dir, _ := kept(t, &authority{roots: newRoots(t)})
	for name, c := range map[string]struct {
		dir, account string
		later        time.Duration
		want         string
	}{
		"expired":         {dir, "web", 2 * time.Hour, "has expired at"},
		"another account": {dir, "admin", 0, `service account "admin"`},
		"empty":           {t.TempDir(), "web", 0, "no such file"},
	} {
		i := keeper(t, &authority{}, t.TempDir(), c.account)
		if _, err := i.readKept(c.dir, time.Now().Add(c.later)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %s", name, err, c.want)
		} else if name == "empty" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v is not the error of a file that does not exist", err)
		}
	}
}

// TestKeptRoot: while the machine was off, the mesh may have changed its root.
func TestKeptRoot(t *testing.T) {
	dir, first := kept(t, &authority{roots: newRoots(t)})
	again := keeper(t, &authority{roots: newRoots(t)}, dir, "web")
	r := again.obtain(t.Context())
	if r.err != nil || bytes.Equal(r.held.roots, first.Roots()) {
		t.Errorf("the certificate of the new root is not used: %v", r.err)
	}
}

// TestMountedFiles: files that the agent keeps itself are not mounted.
func TestMountedFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	certs := filepath.Join(dir, "etc", "certs")
	if err := os.MkdirAll(certs, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{chainFile, keyFile, rootsFile} {
		if err := os.WriteFile(filepath.Join(certs, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, _, _ := MountedFiles("", "/nowhere"); got != "./etc/certs/cert-chain.pem" {
		t.Errorf("%q", got)
	}
	if got, _, _ := MountedFiles("", certs); got != "" {
		t.Errorf("%q is the agent's own", got)
	}
}
