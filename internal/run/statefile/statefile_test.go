package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestDefault(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"PILOT_STATE_DIR": "/s", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/s"},
		{map[string]string{"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/pilot"},
		{map[string]string{"PILOT_STATE_DIR": "", "HOME": "/h"}, "/h/.local/state/pilot"},
		{nil, "pilot-state"},
	} {
		if got := Default(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }); got != c.want {
			t.Errorf("with %v the folder is %q, want %q", c.env, got, c.want)
		}
	}
}

// TestModes: a private key that others have perhaps read, and a file that others may have changed, are refused.
func TestModes(t *testing.T) {
	d := Dir(t.TempDir())
	for _, c := range []struct {
		mode              fs.FileMode
		secret, unchanged bool
	}{{0o600, true, true}, {0o400, true, true}, {0o640, false, true}, {0o644, false, true}, {0o620, false, false}, {0o602, false, false}} {
		if err := d.Replace("f", []byte("content")); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d.Path("f"), c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Read("f"); (err == nil) != c.secret {
			t.Errorf("mode %v: reading a secret ends with %v", c.mode, err)
		}
		if _, err := d.ReadUnchanged("f"); (err == nil) != c.unchanged {
			t.Errorf("mode %v: reading a file without secrets ends with %v", c.mode, err)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	d := Dir(t.TempDir())
	if _, err := d.Read("gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.Mkdir(d.Path("folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Read("folder"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
	if err := d.Replace("large", make([]byte, maxSize+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Read("large"); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a large file: %v", err)
	}
}

// TestCreateOnce: of several programs that create a file, one does, and all have its content.
func TestCreateOnce(t *testing.T) {
	d := Dir(filepath.Join(t.TempDir(), "new"))
	var group sync.WaitGroup
	contents := make([]string, 20)
	for i := range contents {
		group.Go(func() {
			content, err := d.Create("key", func() ([]byte, error) { return []byte{byte('a' + i)}, nil })
			if err != nil {
				t.Error(err)
			}
			contents[i] = string(content)
		})
	}
	group.Wait()
	for _, c := range contents {
		if c != contents[0] || c == "" {
			t.Fatalf("the programs have %q", contents)
		}
	}
	left, err := os.ReadDir(string(d))
	if err != nil || len(left) != 1 {
		t.Errorf("the folder has %v, error %v; want the file only", left, err)
	}
}

// TestCreateFails: an error of make creates no file, and a later attempt succeeds.
func TestCreateFails(t *testing.T) {
	d, failure := Dir(t.TempDir()), errors.New("no entropy")
	if _, err := d.Create("key", func() ([]byte, error) { return nil, failure }); !errors.Is(err, failure) {
		t.Errorf("the error is %v", err)
	}
	if content, err := d.Create("key", func() ([]byte, error) { return []byte("k"), nil }); err != nil || string(content) != "k" {
		t.Errorf("content %q, error %v", content, err)
	}
}

// TestFailedWrite: a write that fails leaves the old content, and no temporary file.
func TestFailedWrite(t *testing.T) {
	d := Dir(t.TempDir())
	if err := d.Replace("f", []byte("old")); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no space left")
	if err := d.write("f", []byte("new"), 0o600, func(string, string) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("the error is %v", err)
	}
	if content, err := d.Read("f"); string(content) != "old" || err != nil {
		t.Errorf("content %q, error %v", content, err)
	}
	if left, err := os.ReadDir(string(d)); len(left) != 1 || err != nil {
		t.Errorf("the folder has %v, error %v", left, err)
	}
}

func TestPublish(t *testing.T) {
	d := Dir(t.TempDir())
	if err := d.Publish("root.pem", []byte("root")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(d.Path("root.pem")); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
}

// TestLock: one program at a time has the folder.
func TestLock(t *testing.T) {
	d := Dir(t.TempDir())
	free := func() bool {
		f, err := os.Open(d.Path(".lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
	}
	for range 2 {
		release, err := d.Lock()
		if err != nil {
			t.Fatal(err)
		}
		if free() {
			t.Error("another program can take the folder")
		}
		release()
		if !free() {
			t.Error("no other program can take the folder that was released")
		}
	}
}
