package secret

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// place is a path for a socket. It is short, because a socket's path must be, and test directories are not.
func place(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sds-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "a", "b", "socket")
}

func listenAt(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestSocket: the socket is for its user only, in a directory that Listen makes, and removed at the end.
func TestSocket(t *testing.T) {
	path := place(t)
	l := listenAt(t, path)
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", info, err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(conn.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); len(left) != 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestSocketLeftBehind: a socket of a killed process is replaced.
func TestSocketLeftBehind(t *testing.T) {
	path := place(t)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	listenAt(t, path)
	if conn, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

// TestSocketPathLength: each path that the system allows can be used.
func TestSocketPathLength(t *testing.T) {
	base, err := os.MkdirTemp("", "s-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	for _, name := range []string{"XDS", "socket", "secrets.sock"} {
		for length := 98; length <= maxSocketPath; length++ {
			path := filepath.Join(base, strings.Repeat("x", length-len(base)-len(name)-2), name)
			if len(path) != length {
				t.Fatalf("%s has %d bytes", path, len(path))
			}
			left := filepath.Join(filepath.Dir(path), "."+name[1:]) // by an agent that was killed
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(left, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			l, err := Listen(t.Context(), path)
			if err != nil {
				t.Errorf("%s with %d bytes: %v", name, length, err)
				continue
			}
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(conn.Close(), l.Close()); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(filepath.Dir(path)); len(left) != 0 || err != nil {
				t.Errorf("left behind: %v, %v", left, err)
			}
		}
	}
}

// TestSocketTaken: a socket or file of another program stays as it is, and the error has the remedy.
func TestSocketTaken(t *testing.T) {
	served := place(t)
	listenAt(t, served)
	file := place(t)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		served:             "another process serves " + served,
		file:               file + " exists and is not a socket; remove it",
		file + "/x/socket": "run the agent where its user can make that directory",
		"/proc/x/socket":   "run the agent where its user can make that directory",
		filepath.Join(os.TempDir(), strings.Repeat("x", 120)): "a socket's path has at most 107 bytes",
	} {
		if l, err := Listen(t.Context(), path); err == nil {
			t.Errorf("%s: %v", path, l.Close())
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if conn, err := net.Dial("unix", served); err != nil {
		t.Error(err)
	} else if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(file); string(text) != "mine" || err != nil {
		t.Errorf("%s, %v", text, err)
	}
}

// TestSocketOfAnother: a listener that was replaced leaves its successor's socket alone.
func TestSocketOfAnother(t *testing.T) {
	path := place(t)
	first := listenAt(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	listenAt(t, path)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("unix", path); errors.Is(err, syscall.ENOENT) {
		t.Error("it is gone")
	}
}
