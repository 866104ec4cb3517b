package filewatch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// changes fails the test unless a change is reported, and waits until it has settled.
func changes(t *testing.T, w *Watcher, what string) {
	t.Helper()
	select {
	case <-w.Changed():
		w.Settle(t.Context())
	case <-time.After(10 * time.Second):
		t.Fatalf("%s was not reported", what)
	}
}

func watcher(t *testing.T) *Watcher {
	t.Helper()
	w := &Watcher{Log: slog.New(slog.DiscardHandler)}
	t.Cleanup(w.Close)
	return w
}

// TestFollowsLinks: the certificate of a mounted Secret is replaced by replacing a link to its folder.
func TestFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	link := func(target, name string) {
		t.Helper()
		tmp := filepath.Join(dir, "tmp")
		if err := os.Symlink(target, tmp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "cert.pem"), version)
	}
	link("one", "..data")
	link("..data/cert.pem", "cert.pem")
	w := watcher(t)
	path := filepath.Join(dir, "cert.pem")
	w.Follow([]string{path})
	link("two", "..data")
	changes(t, w, "the new folder")
	if content, err := Read(path); err != nil || string(content) != "two" {
		t.Errorf("content %q, error %v", content, err)
	}
	// The watches follow: a write in the new folder is reported.
	w.Follow([]string{path})
	write(t, filepath.Join(dir, "two", "cert.pem"), "two again")
	changes(t, w, "a write in the new folder")
}

// TestFollowsNoMore: a file that is no longer followed is not reported.
func TestFollowsNoMore(t *testing.T) {
	one, two := filepath.Join(t.TempDir(), "f"), filepath.Join(t.TempDir(), "f")
	w := watcher(t)
	w.Follow([]string{one})
	w.Follow([]string{two})
	write(t, one, "a")
	write(t, two, "b")
	if e := <-w.Changed(); e.Name != two {
		t.Errorf("a change of %s is reported, want %s", e.Name, two)
	}
}

// TestSettle: files that are written one after the other are one change, and an endless stream of writes is not waited for.
func TestSettle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	w := watcher(t)
	w.Follow([]string{path})
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan struct{})
	go func() {
		defer close(written)
		for ctx.Err() == nil {
			_ = os.WriteFile(path, []byte("a"), 0o600)
		}
	}()
	<-w.Changed()
	w.Settle(t.Context()) // returns although the file is still written
	cancel()
	<-written
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, large, strings.Repeat("a", maxFile+1))
	for path, want := range map[string]string{pipe: "not a regular file", dir: "not a regular file", large: "more than", filepath.Join(dir, "gone"): "no such file"} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", path, err, want)
		}
	}
	write(t, large, strings.Repeat("a", maxFile))
	if content, err := Read(large); err != nil || len(content) != maxFile {
		t.Errorf("a file of the largest size: %d bytes, error %v", len(content), err)
	}
}

// TestNothing: a watcher that follows nothing has no channels that deliver.
func TestNothing(t *testing.T) {
	w := watcher(t)
	w.Follow(nil)
	if w.Changed() != nil || w.Failed() != nil {
		t.Error("a watcher of nothing delivers")
	}
}
