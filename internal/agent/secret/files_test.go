package secret

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/fsnotify/fsnotify"
)

// TestAppearsLater: a file is served when it is created, however many folders of its path do not exist before.
func TestAppearsLater(t *testing.T) {
	w := newFixture(t, nil)
	m := newMaterial(t, "a", tomorrow())
	for _, path := range []string{"ca.pem", "deep/down/ca.pem"} {
		name := rootsPrefix + w.path(path)
		w.board.want([]string{name}, nil)
		w.await(name, StateMissing, "no such file or directory; mount or write it there, and it is used")
	}
	w.put("ca.pem", m.cert)
	w.roots(rootsPrefix+w.path("ca.pem"), m.cert)
	if err := os.MkdirAll(w.path("deep/down"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.put("deep/down/ca.pem", m.cert)
	w.roots(rootsPrefix+w.path("deep/down/ca.pem"), m.cert)
}

// TestRotation: each way in which files are replaced is followed.
func TestRotation(t *testing.T) {
	first, second := newMaterial(t, "a", tomorrow()), newMaterial(t, "b", tomorrow())
	for name, rotate := range map[string]func(*fixture){
		"renamed":  func(w *fixture) { w.put("d/ca.pem", second.cert) },
		"in place": func(w *fixture) { w.write("d/ca.pem", second.cert) },
		"removed and made again": func(w *fixture) {
			if err := os.Remove(w.path("d/ca.pem")); err != nil {
				w.Fatal(err)
			}
			w.write("d/ca.pem", second.cert)
		},
		"with its directory": func(w *fixture) {
			if err := os.RemoveAll(w.path("d")); err != nil {
				w.Fatal(err)
			}
			w.await(rootsPrefix+w.path("d/ca.pem"), StateKept, "no such file")
			if err := os.Mkdir(w.path("d"), 0o755); err != nil {
				w.Fatal(err)
			}
			w.write("d/ca.pem", second.cert)
		},
		"another directory in its place": func(w *fixture) {
			if err := errors.Join(os.Mkdir(w.path("e"), 0o755), os.WriteFile(w.path("e/ca.pem"), []byte(second.cert), 0o600),
				os.Rename(w.path("d"), w.path("old")), os.Rename(w.path("e"), w.path("d"))); err != nil {
				w.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, nil)
			if err := os.Mkdir(w.path("d"), 0o755); err != nil {
				t.Fatal(err)
			}
			w.put("d/ca.pem", first.cert)
			secret := rootsPrefix + w.path("d/ca.pem")
			w.board.want([]string{secret}, nil)
			w.roots(secret, first.cert)
			rotate(w)
			w.roots(secret, second.cert)
		})
	}
}

// TestKubernetesRotation: mounted files are links through a link that is swapped, and its former target is removed.
func TestKubernetesRotation(t *testing.T) {
	w := newFixture(t, nil)
	mount := func(version, text string) {
		if err := errors.Join(os.Mkdir(w.path(version), 0o755), os.WriteFile(w.path(version+"/ca.pem"), []byte(text), 0o600),
			os.Symlink(version, w.path("..data_tmp")), os.Rename(w.path("..data_tmp"), w.path("..data"))); err != nil {
			t.Fatal(err)
		}
	}
	secret := rootsPrefix + w.path("ca.pem")
	m := newMaterial(t, "0", tomorrow())
	mount("..0", m.cert)
	if err := os.Symlink("..data/ca.pem", w.path("ca.pem")); err != nil {
		t.Fatal(err)
	}
	w.board.want([]string{secret}, nil)
	w.roots(secret, m.cert)
	for _, version := range []string{"..1", "..2", "..3"} {
		before, err := os.Readlink(w.path("..data"))
		if err != nil {
			t.Fatal(err)
		}
		m := newMaterial(t, version, tomorrow())
		mount(version, m.cert)
		if err := os.RemoveAll(w.path(before)); err != nil {
			t.Fatal(err)
		}
		w.roots(secret, m.cert)
	}
}

// TestLastGood: a bad file changes nothing and is reported, until the file is good.
func TestLastGood(t *testing.T) {
	w := newFixture(t, nil)
	a, b := newMaterial(t, "a", tomorrow()), newMaterial(t, "b", tomorrow())
	w.put("c.pem", a.cert)
	w.put("k.pem", a.key)
	name := pairPrefix + w.path("c.pem") + pairCut + w.path("k.pem")
	w.board.want([]string{name}, nil)
	first := w.await(name, StateServed, "")
	w.put("k.pem", b.key)
	if e := w.await(name, StateKept, "private key does not match"); e.version != first.version {
		t.Error("another version")
	}
	w.put("k.pem", "garbage")
	w.await(name, StateKept, "it has no PEM block")
	w.put("k.pem", a.key)
	if e := w.await(name, StateServed, ""); e.version != first.version {
		t.Error("another version")
	}
	w.put("c.pem", b.cert)
	w.put("k.pem", b.key)
	w.awaitThat(name, "b's", func(e Entry) bool { return e.State == StateServed && e.version != first.version })
	for _, line := range []string{"the newest version of a secret cannot be used; Envoy keeps the last good one", "a secret is good again", "serving a secret"} {
		if !strings.Contains(w.log.String(), line) {
			t.Errorf("the log does not say: %s", line)
		}
	}
}

// TestOddFiles: they are refused at once, without waiting for a pipe or reading a device to its end.
func TestOddFiles(t *testing.T) {
	w := newFixture(t, nil)
	if err := syscall.Mkfifo(w.path("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(w.path("large"), nil, 0o600), os.Truncate(w.path("large"), maxFile+1),
		os.Symlink("loop", w.path("loop"))); err != nil {
		t.Fatal(err)
	}
	for path, problem := range map[string]string{
		w.path("pipe"): "is not a regular file", w.dir: "is not a regular file", "/dev/zero": "is not a regular file",
		w.path("large"): "the most is", w.path("loop"): "too many levels of symbolic links",
		w.path("pipe/x"): "not a directory", "a\x00b": "invalid argument",
	} {
		name := rootsPrefix + path
		w.board.want([]string{name}, nil)
		w.await(name, StateMissing, problem)
	}
	w.board.want([]string{"bogus"}, nil)
	w.await("bogus", StateMissing, "this agent has no secret of the name")
}

// TestWithoutWatcher: where nothing can be watched, files are read at intervals.
func TestWithoutWatcher(t *testing.T) {
	w := newFixture(t, func(f *Files) {
		f.newWatcher = func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }
	})
	name := rootsPrefix + w.path("ca.pem")
	w.board.want([]string{name}, nil)
	w.await(name, StateMissing, "no such file")
	m := newMaterial(t, "a", tomorrow())
	w.put("ca.pem", m.cert)
	w.roots(name, m.cert)
	if !strings.Contains(w.log.String(), "raise fs.inotify.max_user_instances") {
		t.Error("the log does not say what to do")
	}
}

// TestUnwanted: a secret that no stream requests is kept for a while, with its last good content, and then removed.
func TestUnwanted(t *testing.T) {
	w := newFixture(t, nil)
	m := newMaterial(t, "a", tomorrow())
	w.put("ca.pem", m.cert)
	name := rootsPrefix + w.path("ca.pem")
	w.board.want([]string{name}, nil)
	first := w.roots(name, m.cert)
	w.board.want(nil, []string{name})
	w.put("ca.pem", "garbage")
	w.await(name, StateKept, "it has no PEM block")
	w.board.want([]string{name}, nil)
	if e := w.awaitThat(name, "wanted", func(e Entry) bool { return e.Streams == 1 }); e.version != first.version {
		t.Errorf("%+v", e.status())
	}
	w.board.want(nil, []string{name})
	entries := map[string]Entry{name: w.awaitThat(name, "unwanted", func(e Entry) bool { return e.Streams == 0 })}
	if expire(entries, first.Since.Add(keepUnwanted)); len(entries) != 1 {
		t.Error("it went too early")
	}
	if expire(entries, entries[name].unwanted.Add(keepUnwanted+1)); len(entries) != 0 {
		t.Error("it stays")
	}
}

// TestTrustBesideFiles: the roots of the mesh in a file are served with the roots of a trust bundle, also when the file changes; no
// other secret gets them.
func TestTrustBesideFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	var files *Files
	w := newFixture(t, func(f *Files) { files = f })
	if err := os.MkdirAll("etc/certs", 0o755); err != nil {
		t.Fatal(err)
	}
	own, next, other := newMaterial(t, "own", tomorrow()), newMaterial(t, "next", tomorrow()), newMaterial(t, "other", tomorrow())
	write := func(text string) {
		if err := os.WriteFile("etc/certs/root-cert.pem", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.TrimSpace(own.cert))
	w.put("ca.pem", own.cert)
	elsewhere := rootsPrefix + w.path("ca.pem")
	w.board.want([]string{meshRoots, elsewhere}, nil)
	w.roots(meshRoots, own.cert)
	if err := files.Trust([]string{other.cert}); err != nil {
		t.Fatal(err)
	}
	w.roots(meshRoots, own.cert+other.cert)
	write(next.cert)
	w.roots(meshRoots, next.cert+other.cert)
	if err := files.Trust([]string{"nonsense"}); err == nil {
		t.Error("nonsense is trusted")
	}
	w.roots(elsewhere, own.cert)
	if err := files.Trust(nil); err != nil {
		t.Fatal(err)
	}
	w.roots(meshRoots, next.cert)
}
