package secret

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/disk/disktest"
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

// TestKept: an agent restores the certificate of an earlier one, even if some of the files are damaged or missing.
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

// TestKeptRefused: a kept certificate that is not good any more is refused with the reason.
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

// TestSeparateRoots: the roots file of an earlier version, which has the anchors too, loses them. A file of an administrator, or one
// without the roots of the identity, stays.
func TestSeparateRoots(t *testing.T) {
	anchor, other := newMaterial(t, "another mesh", tomorrow()).cert, newMaterial(t, "new root of this mesh", tomorrow()).cert
	for name, c := range map[string]struct {
		before  func(dir string, own []byte) error
		want    int  // roots in the file
		bundle  int  // roots in the bundle; 0 for none
		expired bool // the identity has expired
	}{
		"an earlier version": {func(dir string, own []byte) error {
			return os.WriteFile(filepath.Join(dir, rootsFile), append(own, anchor...), 0o600)
		}, 1, 2, false},
		"an earlier version, and the machine was off for long": {func(dir string, own []byte) error {
			return os.WriteFile(filepath.Join(dir, rootsFile), append(own, anchor...), 0o600)
		}, 1, 2, true},
		"an earlier version without anchors": {func(string, []byte) error { return nil }, 1, 0, false},
		"an administrator": {func(dir string, own []byte) error {
			path := filepath.Join(dir, rootsFile)
			return errors.Join(os.WriteFile(path, append(own, other...), 0o600), os.Chtimes(path, time.Now(), time.Now().Add(time.Hour)))
		}, 2, 0, false},
		"other roots only": {func(dir string, _ []byte) error {
			return os.WriteFile(filepath.Join(dir, rootsFile), []byte(other+anchor), 0o600)
		}, 2, 0, false},
		"this version": {func(dir string, own []byte) error {
			return errors.Join(os.WriteFile(BundleFile(dir), own, 0o600), os.WriteFile(filepath.Join(dir, rootsFile), append(own, anchor...), 0o600))
		}, 2, 1, false},
		"no identity": {func(dir string, own []byte) error {
			return errors.Join(os.Remove(filepath.Join(dir, wholeFile)), os.WriteFile(filepath.Join(dir, rootsFile), append(own, anchor...), 0o600))
		}, 2, 0, false},
	} {
		dir, first := kept(t, &authority{roots: newRoots(t)})
		if err := errors.Join(os.Remove(BundleFile(dir)), c.before(dir, bytes.Clone(first.Roots()))); err != nil {
			t.Fatal(err)
		}
		account := "web"
		if c.expired {
			account = "another" // so that it cannot be used
		}
		keeper(t, &authority{}, dir, account)
		text, err := os.ReadFile(filepath.Join(dir, rootsFile))
		if got := bytes.Count(text, []byte("BEGIN")); err != nil || got != c.want || c.want == 1 && !bytes.Equal(text, first.Roots()) {
			t.Errorf("%s: %d roots vouch for the control plane, want %d: %v", name, got, c.want, err)
		}
		text, _ = os.ReadFile(BundleFile(dir))
		if got := bytes.Count(text, []byte("BEGIN")); got != c.bundle {
			t.Errorf("%s: %d roots in the bundle, want %d", name, got, c.bundle)
		}
	}
}

// TestFullFolder: if the folder has no space, its files stay as they are and still belong together; later they are written.
func TestFullFolder(t *testing.T) {
	dir := disktest.Small(t)
	a := &authority{roots: newRoots(t)}
	i := keeper(t, a, dir, "web")
	issue := func() {
		t.Helper()
		r := i.obtain(t.Context())
		if r.err != nil {
			t.Fatal(r.err)
		}
		i.held.Store(r.held)
		i.write(r.held)
	}
	issue()
	first, junk := i.Certificate(), filepath.Join(dir, "junk")
	file, err := os.Create(junk)
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	if err := errors.Join(file.Truncate(9*4096), file.Close()); err != nil { // for some of the files there is space
		t.Fatal(err)
	}
	issue()
	holds := func(want *tls.Certificate) bool {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, chainFile), filepath.Join(dir, keyFile))
		h, keptErr := i.readKept(dir, time.Now())
		return err == nil && keptErr == nil && bytes.Equal(pair.Certificate[0], want.Certificate[0]) && bytes.Equal(h.pair.Certificate[0], want.Certificate[0])
	}
	if !i.unwritten || !holds(first) {
		t.Errorf("on a full disk: unwritten %v, or the files do not have the first certificate", i.unwritten)
	}
	if err := os.Remove(junk); err != nil {
		t.Fatal(err)
	}
	if i.write(i.held.Load()); i.unwritten || !holds(i.Certificate()) {
		t.Errorf("with space again: unwritten %v, or the files do not have the second certificate", i.unwritten)
	}
}

// TestWake: timers stop while a machine is suspended, and certificates age. After waking up, the agent requests a certificate within a minute.
func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{roots: newRoots(t)}
		i := keeper(t, a, "", "web")
		var slept atomic.Int64
		i.now = func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = i.board.Run(ctx) })
		running.Go(func() { _ = i.Run(ctx) })
		defer func() { cancel(); running.Wait() }()
		for _, step := range []struct {
			slept, after time.Duration
			asked        int
		}{{0, time.Second, 1}, {0, 20 * time.Minute, 1}, {25 * time.Minute, recheck, 2}, {0, 5 * time.Minute, 2}} {
			slept.Add(int64(step.slept))
			<-time.After(step.after)
			synctest.Wait()
			a.mu.Lock()
			if a.asked != step.asked {
				t.Errorf("%v after %v of sleep: asked %d times, want %d", step.after, step.slept, a.asked, step.asked)
			}
			a.mu.Unlock()
		}
	})
}
