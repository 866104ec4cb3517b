package folder

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/source"
)

// sink keeps what a source has passed on.
type sink struct {
	mu       sync.Mutex
	secrets  map[api.Key]*kube.Secret
	problems []api.Problem
	changed  chan struct{}
	batches  int
}

// Apply implements source.Sink.
func (s *sink) Apply(b source.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches++
	for _, e := range b.Events {
		if e.Removed() {
			delete(s.secrets, e.Key)
		} else {
			s.secrets[e.Key] = e.Value.(*kube.Secret)
		}
	}
	for _, p := range b.Problems {
		if p.Gone {
			s.problems = slices.DeleteFunc(s.problems, func(o api.Problem) bool { return o == p.Problem })
		} else {
			s.problems = append(s.problems, p.Problem)
		}
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

type fixture struct {
	*sink
	t   *testing.T
	dir string
}

// start follows a new folder.
func start(t *testing.T, fill func(f *fixture)) *fixture {
	f := &fixture{&sink{secrets: map[api.Key]*kube.Secret{}, changed: make(chan struct{}, 1)}, t, filepath.Join(t.TempDir(), "secrets")}
	f.must(os.Mkdir(f.dir, 0o755))
	if fill != nil {
		fill(f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- New(f.dir, slog.New(slog.DiscardHandler)).Run(ctx, f.sink) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	f.wait("the first list", func() bool { return f.batches > 0 })
	return f
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// write writes a file of a Secret.
func (f *fixture) write(secret, name, text string) {
	f.t.Helper()
	f.must(os.MkdirAll(filepath.Join(f.dir, secret), 0o755))
	f.must(os.WriteFile(filepath.Join(f.dir, secret, name), []byte(text), 0o600))
}

func (f *fixture) wait(what string, ok func() bool) {
	f.t.Helper()
	deadline := time.After(9 * time.Second) // before poll, so that only the watch can notice changes
	for {
		f.mu.Lock()
		done := ok()
		f.mu.Unlock()
		if done {
			return
		}
		select {
		case <-f.changed:
		case <-deadline:
			f.mu.Lock()
			defer f.mu.Unlock()
			f.t.Fatalf("no %s: %v %v", what, f.secrets, f.problems)
		}
	}
}

// chain is the certificate of a Secret; empty for none.
func (f *fixture) chain(namespace, name string) string {
	s := f.secrets[api.Key{Kind: kube.KindSecret, Namespace: namespace, Name: name}]
	if s == nil || s.Content == nil {
		return ""
	}
	chain, _, _ := s.Content.Pair()
	return string(chain)
}

func (f *fixture) told(text string) bool {
	return slices.ContainsFunc(f.problems, func(p api.Problem) bool { return strings.Contains(p.String(), text) })
}

func TestSecretsComeChangeAndGo(t *testing.T) {
	a, b := newPair(t), newPair(t)
	f := start(t, func(f *fixture) {
		f.write("shop/first", "tls.crt", a.cert)
		f.write("shop/first", "tls.key", a.key)
	})
	if f.chain("shop", "first") != a.cert {
		t.Fatal("the first list lacks what is there")
	}
	f.write("depot/second", "tls.key", b.key)
	f.write("depot/second", "tls.crt", b.cert)
	f.wait("the Secret of a new namespace", func() bool { return f.chain("depot", "second") == b.cert })
	f.write("shop/first", "tls.crt", b.cert)
	f.write("shop/first", "tls.key", b.key)
	f.wait("the other certificate", func() bool { return f.chain("shop", "first") == b.cert })
	f.must(os.RemoveAll(filepath.Join(f.dir, "shop", "first")))
	f.wait("removal", func() bool { return f.chain("shop", "first") == "" })
	f.wait("peace", func() bool { return len(f.problems) == 0 })
}

// TestBrokenKeepsTheLastGoodOne checks that a broken, half-written or unreadable file changes nothing, and has a problem that names it.
func TestBrokenKeepsTheLastGoodOne(t *testing.T) {
	a, b := newPair(t), newPair(t)
	f := start(t, func(f *fixture) {
		f.write("shop/first", "tls.crt", a.cert)
		f.write("shop/first", "tls.key", a.key)
		f.write("shop/first", "ca.crt", a.cert)
		f.write("shop/other", "ca.crt", a.cert)
	})
	for _, c := range []struct{ name, file, text, problem string }{
		{"half a certificate", "tls.crt", a.cert[:100], "first/tls.crt: error: 1 of its 1 PEM blocks cannot be read"},
		{"a key of another", "tls.key", b.key, "tls.crt and tls.key: private key does not match"},
		{"no key", "tls.key", "", "first/tls.key: error: it is missing or empty"},
		{"garbage as roots", "ca.crt", "x", "first/ca.crt: error: it has no PEM block"},
	} {
		f.write("shop/first", c.file, c.text)
		f.wait(c.name, func() bool { return f.told(c.problem) && f.told("the last good version stays in force") })
		s := f.secrets[api.Key{Kind: kube.KindSecret, Namespace: "shop", Name: "first"}]
		roots, _, _ := s.Content.Roots()
		if f.chain("shop", "first") != a.cert || string(roots) != a.cert {
			t.Errorf("%s: the last good version is lost", c.name)
		}
		f.write("shop/first", "tls.crt", a.cert)
		f.write("shop/first", "tls.key", a.key)
		f.write("shop/first", "ca.crt", a.cert)
		f.wait("the end of the problem", func() bool { return len(f.problems) == 0 })
	}
	for _, p := range f.problems {
		if strings.Contains(p.String(), "BEGIN") {
			t.Errorf("a problem quotes a file: %v", p)
		}
	}
	f.must(os.Rename(f.dir, f.dir+".away"))
	f.wait("the missing folder", func() bool { return f.told("the folder of Secrets cannot be read") })
	if f.chain("shop", "first") != a.cert {
		t.Error("a folder that is away takes its Secrets along")
	}
}

// TestOddFolders checks that a file or folder outside the layout has a problem, and affects nothing else.
func TestOddFolders(t *testing.T) {
	a := newPair(t)
	f := start(t, func(f *fixture) {
		f.write("shop/Upper_Case", "tls.crt", a.cert)
		f.write("shop/..data/x", "tls.crt", "x") // of a mounted volume
		f.write(".git/x", "tls.crt", "x")
		f.write("shop", "stray.pem", a.cert)
		f.write("", "stray.pem", a.cert)
		f.write("shop/good", "tls.crt", a.cert)
		f.write("shop/good", "tls.key", a.key)
	})
	if len(f.secrets) != 1 || f.chain("shop", "good") != a.cert {
		t.Errorf("read: %v", f.secrets)
	}
	for _, what := range []string{"Upper_Case", "shop/stray.pem", "secrets/stray.pem"} {
		if !f.told(what) {
			t.Errorf("nothing is told of %s: %v", what, f.problems)
		}
	}
	if len(f.problems) != 3 {
		t.Errorf("problems: %v", f.problems)
	}
}

// TestMountedVolume checks that a link that is replaced, as in a mounted Secret, is noticed.
func TestMountedVolume(t *testing.T) {
	a, b := newPair(t), newPair(t)
	versions := t.TempDir()
	put := func(version string, p pair) {
		if err := os.Mkdir(filepath.Join(versions, version), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"tls.crt": p.cert, "tls.key": p.key} {
			if err := os.WriteFile(filepath.Join(versions, version, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	put("1", a)
	put("2", b)
	f := start(t, func(f *fixture) {
		f.must(os.MkdirAll(filepath.Join(f.dir, "shop/mounted"), 0o755))
		f.must(os.Symlink(filepath.Join(versions, "1"), filepath.Join(f.dir, "shop/mounted/..data")))
		for _, name := range []string{"tls.crt", "tls.key"} {
			f.must(os.Symlink("..data/"+name, filepath.Join(f.dir, "shop/mounted", name)))
		}
	})
	if f.chain("shop", "mounted") != a.cert {
		t.Fatal("links are not followed")
	}
	f.must(os.Symlink(filepath.Join(versions, "2"), filepath.Join(f.dir, "shop/mounted/..next")))
	f.must(os.Rename(filepath.Join(f.dir, "shop/mounted/..next"), filepath.Join(f.dir, "shop/mounted/..data")))
	f.wait("the other version", func() bool { return f.chain("shop", "mounted") == b.cert })
}
