package disk

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pilotmesh/pilot/internal/agent/disk/disktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRead: only a regular file is read, and nothing blocks.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	large, err := os.Create(at("large"))
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(large.Truncate(maxFile+1), large.Close(), os.WriteFile(at("file"), []byte("text"), 0o600),
		syscall.Mkfifo(at("pipe"), 0o600), os.Symlink(at("pipe"), at("link")), os.Symlink(at("loop"), at("loop")))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		at("file"): "text", os.DevNull: "", at("pipe"): "is not a regular file; write the content into one", at("link"): "is not a regular file",
		at("large"): "has 4194305 bytes, and the most is 4194304", dir: "is not a regular file", "/dev/zero": "is not a regular file",
		at("loop"): "too many levels", at("none"): "no such file",
	} {
		got, err := Read(path)
		if err != nil {
			got = []byte(err.Error())
		}
		if !bytes.Contains(got, []byte(want)) || (want == "") != (len(got) == 0) {
			t.Errorf("%s: %s; want %s", path, got, want)
		}
	}
}

// TestReadHangs: if the file system does not answer, Read fails after the time limit, and the error names the file.
func TestReadHangs(t *testing.T) {
	answer := make(chan struct{})
	defer close(answer)
	_, err := within(time.Millisecond, "/net/settings", func() ([]byte, error) {
		<-answer
		return nil, nil
	})
	if err == nil || !strings.Contains(err.Error(), "/net/settings cannot be read: its file system has not answered for 1ms") {
		t.Error(err)
	}
}

// identify returns the inode of a file, which a replacement does not keep.
func identify(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// TestReplace: a file with the wanted content and mode stays the same file; any other is replaced.
func TestReplace(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		kept bool
	}{
		"identical":          {func(path string) error { return os.WriteFile(path, []byte("new"), 0o600) }, true},
		"other content":      {func(path string) error { return os.WriteFile(path, []byte("old"), 0o600) }, false},
		"readable by others": {func(path string) error { return os.WriteFile(path, []byte("new"), 0o644) }, false},
		"a link to such file": {func(path string) error {
			return errors.Join(os.WriteFile(path+"-", []byte("new"), 0o600), os.Symlink(path+"-", path))
		}, false},
		"a pipe": {func(path string) error { return syscall.Mkfifo(path, 0o600) }, false},
	} {
		path := filepath.Join(t.TempDir(), "file")
		if err := c.make(path); err != nil {
			t.Fatal(err)
		}
		before := identify(t, path)
		if err := Replace(path, []byte("new")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if kept := identify(t, path) == before; kept != c.kept {
			t.Errorf("%s: kept %v", name, kept)
		}
		info, err := os.Lstat(path)
		if text, readErr := os.ReadFile(path); err != nil || readErr != nil || string(text) != "new" || info.Mode() != privateMode {
			t.Errorf("%s: %q, %v, %v, %v", name, text, info.Mode(), err, readErr)
		}
	}
}

// TestPublic: a public file keeps its permissions, and any other one gets private ones.
func TestPublic(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]os.FileMode{"public": 0o644, "private": privateMode, "new": privateMode} {
		path := filepath.Join(dir, name)
		if name != "new" {
			if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Chmod(path, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		err := ReplaceAll(dir, []File{{Name: name, Content: []byte("x"), Public: name != "private"}})
		if info, statErr := os.Stat(path); err != nil || statErr != nil || info.Mode() != want {
			t.Errorf("%s: %v, want %v; %v", name, info.Mode(), want, err)
		}
	}
}

// TestFullDisk: on a full disk files stay, identical content needs no space, and of files that belong together none is replaced.
func TestFullDisk(t *testing.T) {
	dir := disktest.Small(t)
	page := func(b byte) []byte { return bytes.Repeat([]byte{b}, 4096) }
	old := []File{{Name: "one", Content: page('1')}, {Name: "two", Content: page('2')}, {Name: "three", Content: page('3'), Public: true}}
	if err := ReplaceAll(dir, old); err != nil {
		t.Fatal(err)
	}
	junk, err := os.Create(filepath.Join(dir, "junk"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = junk.Write(page('x'))
	}
	if err := errors.Join(junk.Truncate(10*4096), junk.Close()); err != nil { // two pages are free
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(dir, "one"), slices.Repeat(page('n'), 5)); !Full(err) {
		t.Errorf("a write into a full disk: %v", err)
	}
	if err := errors.Join(Replace(filepath.Join(dir, "one"), page('1')), ReplaceAll(dir, old)); err != nil {
		t.Errorf("what is there already: %v", err)
	}
	if err := ReplaceAll(dir, []File{{Name: "one", Content: page('a')}, {Name: "two", Content: slices.Repeat(page('b'), 5)}}); !Full(err) {
		t.Errorf("one of two files does not fit: %v", err)
	}
	for _, f := range old {
		if text, err := os.ReadFile(filepath.Join(dir, f.Name)); err != nil || !bytes.Equal(text, f.Content) {
			t.Errorf("%s has changed: %v", f.Name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != len(old)+1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestSweep removes temporary files of killed writers, and nothing else.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for name, age := range map[string]time.Duration{
		".key.pem123": time.Hour, ".key.pem456": 0, ".key.pem": time.Hour, ".key.pem12x": time.Hour, ".other.pem123": time.Hour, "key.pem": time.Hour, "key.pem123": time.Hour,
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, now, now.Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, ".key.pem789"), 0o700); err != nil {
		t.Fatal(err)
	}
	Sweep(dir, "key.pem", "cert.pem")
	Sweep(filepath.Join(dir, "none"), "key.pem")
	var left []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{".key.pem", ".key.pem12x", ".key.pem456", ".key.pem789", ".other.pem123", "key.pem", "key.pem123"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("%q, %v", left, err)
	}
}

// TestLock: one lock at a time, which writes nothing and is free again at its end.
func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	release, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(dir); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second lock: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("written: %v, %v", left, err)
	}
	release()
	if release, err = Lock(dir); err != nil {
		t.Fatal(err)
	}
	release()
	if _, err := Lock("/proc/none"); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a folder that cannot be made: %v", err)
	}
}
