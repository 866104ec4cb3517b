package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/pilotmesh/pilot/packaging/debian"
	"github.com/pilotmesh/pilot/packaging/tree"
)

// unpackImage lays the files of an image into a folder, with their owners.
func unpackImage(t *testing.T, index v1.ImageIndex, dir string) {
	t.Helper()
	list, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	i, err := index.Image(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	files := mutate.Extract(i)
	defer files.Close()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "tar", "-C", dir, "-xp", "--same-owner", "--numeric-owner")
	cmd.Stdin = files
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// testRelease returns a release for this machine, whose Envoy is the tests'.
func testRelease(t *testing.T, envoy string) *release {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := &release{
		version: "1.2.3", root: root, out: filepath.Join(dir, "out"), work: filepath.Join(dir, "work"), arches: []string{runtime.GOARCH}, envoyVersion: "1.40.0",
		envoys: map[string]string{runtime.GOARCH: envoy}, date: time.Unix(1_700_000_000, 0), say: t.Output(),
		debian: debian.Store{Dir: filepath.Join(root, ".tools", "debian"), Mirror: debian.Mirror},
	}
	for _, folder := range []string{r.out, r.work} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestImagesStart runs the programs of the images with nothing but the files of the images: their versions, a proxy that becomes ready, and the
// capture of traffic.
func TestImagesStart(t *testing.T) {
	envoy := needed(t, "unshare", "ip", "tar", "apt-get", "/usr/sbin/chroot")
	r := testRelease(t, envoy)
	for _, p := range products { // a mirror removes old versions, and a release needs the newer ones pinned; everything else can still be tested
		packages, err := debian.Pinned(runtime.GOARCH, p.groups...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.debian.Fetch(t.Context(), packages); errors.Is(err, debian.ErrUnavailable) {
			t.Skip(err)
		}
	}
	for _, p := range products {
		at := platform{"linux", runtime.GOARCH}
		if err := compile(t.Context(), r.root, r.work, r.version, p.program, r.program(p.program, at), at); err != nil {
			t.Fatal(err)
		}
	}
	made, err := r.images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, index := range made {
		unpackImage(t, index, filepath.Join(dir, name))
		first, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if second, err := again[name].Digest(); err != nil || first != second {
			t.Errorf("the image %s has the digest %v, and made once more %v (%v)", name, first, second, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts", "sh", "testdata/images.sh",
		filepath.Join(dir, "pilot"), filepath.Join(dir, "proxyv2"), filepath.Join(dir, "install-cni"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "== passed") {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "v1.2.3 ") {
		t.Errorf("the programs do not say that they are of the release 1.2.3:\n%s", out)
	}
}

// TestArchive: an archive has the program, its pages and the licence in one folder, and is the same each time.
func TestArchive(t *testing.T) {
	r := testRelease(t, "")
	source := filepath.Join(r.work, "pilotctl")
	write(t, r.work, "pilotctl", "program")
	files := tree.Tree{}
	files.Program("pilotctl_1.2.3_linux_amd64/pilotctl", source)
	files.Text("pilotctl_1.2.3_linux_amd64/LICENSE", "Apache")
	for _, name := range []string{"a.tar.gz", "b.tar.gz"} {
		if err := r.archive(name, files); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(source, time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.checksums(); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(sums)), "\n")
	if len(lines) != 2 || lines[0][:64] != lines[1][:64] || lines[0][64:] != "  a.tar.gz" || lines[1][64:] != "  b.tar.gz" {
		t.Errorf("the checksums are\n%s", sums)
	}
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = r.out
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
}

// TestCheck: wrong settings are refused before anything is made, with what to write instead.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		version string
		arches  []string
		epoch   string
		says    string
	}{
		{"v1.2.3", nil, "1", "no version of a release"},
		{"1.2.3-SNAPSHOT", nil, "1", "1.2.3-rc.1"},
		{"1.2.3/../x", nil, "1", "no version of a release"},
		{"1.2.3", []string{"riscv64"}, "1", "takes amd64 and arm64"},
		{"1.2.3", []string{"arm64"}, "1", "./tools -for linux/arm64"},
		{"1.2.3", nil, "yesterday", "SOURCE_DATE_EPOCH"},
	} {
		t.Setenv("SOURCE_DATE_EPOCH", c.epoch)
		r := &release{version: c.version, root: t.TempDir(), arches: c.arches, say: io.Discard}
		if err := r.check(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %v %s: %v", c.version, c.arches, c.epoch, err)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	r := &release{version: "1.2.3-rc.1", root: t.TempDir(), say: io.Discard}
	if err := r.check(t.Context()); err == nil || !strings.Contains(err.Error(), "set SOURCE_DATE_EPOCH") {
		t.Errorf("outside of a clone: %v", err)
	}
}

// TestCommand: an error about an unknown command names the known ones.
func TestCommand(t *testing.T) {
	for _, args := range [][]string{nil, {"rpm"}} {
		if err := command(t.Context(), args); err == nil || !strings.Contains(err.Error(), "deb, release or pin") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
