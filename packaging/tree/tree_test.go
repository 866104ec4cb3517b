package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWrite: the order, the owners and the times do not depend on the machine, and folders stand before their content.
func TestWrite(t *testing.T) {
	source := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte("#!"), 0o600); err != nil {
		t.Fatal(err)
	}
	made := func(touched time.Time) []byte {
		if err := os.Chtimes(source, touched, touched); err != nil {
			t.Fatal(err)
		}
		files := Tree{}
		files.Text("etc/passwd", "root")
		files.Program("usr/bin/agent", source)
		files.Folder("tmp", 0o777|fs.ModeSticky, 0)
		files.Link("bin", "usr/bin")
		var out bytes.Buffer
		if err := files.Write(&out, time.Unix(5, 7)); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	first := made(time.Unix(1, 0))
	if !bytes.Equal(first, made(time.Unix(2, 0))) {
		t.Error("the same files make two archives")
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(first)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Uname != "" || h.ModTime.Unix() != 5 || h.ModTime.Nanosecond() != 0 {
			t.Errorf("%s: owner %d %q, time %v", h.Name, h.Uid, h.Uname, h.ModTime)
		}
		names = append(names, h.FileInfo().Mode().String()+" "+h.Name)
	}
	const want = "Lrwxrwxrwx bin drwxr-xr-x etc/ -rw-r--r-- etc/passwd dtrwxrwxrwx tmp/ drwxr-xr-x usr/ drwxr-xr-x usr/bin/ -rwxr-xr-x usr/bin/agent"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the archive has\n%s\nnot\n%s", got, want)
	}
}

// TestRefused: no entry lies outside of the archive, below a file, or has two contents.
func TestRefused(t *testing.T) {
	for _, name := range []string{"/etc/passwd", "../etc", "a/../../b", "a//b", "..", "."} {
		if err := (Tree{name: {Mode: 0o644}}).Write(io.Discard, time.Time{}); err == nil || !strings.Contains(err.Error(), "must be relative") {
			t.Errorf("%s: %v", name, err)
		}
	}
	files := Tree{"bin": {Mode: fs.ModeSymlink, Target: "usr/bin"}, "bin/sh": {Mode: 0o755}}
	if err := files.Write(io.Discard, time.Time{}); err == nil || !strings.Contains(err.Error(), "bin, which is no folder") {
		t.Errorf("a file below a link: %v", err)
	}
	files = Tree{"a": {Mode: 0o644, Data: []byte("1")}}
	if err := files.Join(Tree{"a": {Mode: 0o644, Data: []byte("2")}}); err == nil || !strings.Contains(err.Error(), "two places") {
		t.Errorf("two contents: %v", err)
	}
	if err := files.Join(Tree{"a": {Mode: 0o644, Data: []byte("1")}}); err != nil {
		t.Errorf("the same content twice: %v", err)
	}
}
