package binaries

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRemedies: whatever keeps a build from succeeding, the error names the remedy.
func TestRemedies(t *testing.T) {
	for said, want := range map[string]string{
		"write /tmp/x: no space left on device":                                                        "disk",
		"compile: signal: killed":                                                                      "memory",
		`Get "https://proxy.golang.org/x": dial tcp: i/o timeout`:                                      "GOPROXY",
		"verifying module: checksum mismatch":                                                          "do not use it",
		"go: go.mod requires go >= 1.27 (running go 1.21; GOTOOLCHAIN=local; toolchain not available)": "GOTOOLCHAIN",
		"something else": "again",
	} {
		if got := remedy(said, errors.New("exit status 1")); !strings.Contains(got, want) {
			t.Errorf("%q: the remedy %q does not speak of %q", said, got, want)
		}
	}
}

// TestFollow: progress is counted, downloads are passed over, and what the compiler says is kept.
func TestFollow(t *testing.T) {
	in := "go: downloading k8s.io/api v0.36.3\nk8s.io/api/core/v1\ninternal/cpu\n# k8s.io/x\nx.go:1:2: undefined: y\n"
	if got := follow(strings.NewReader(in), "p", os.Stderr); got != "# k8s.io/x\nx.go:1:2: undefined: y" {
		t.Errorf("kept %q", got)
	}
}

// TestFind: all programs or none, with the remedy.
func TestFind(t *testing.T) {
	root := t.TempDir()
	for _, s := range sets() {
		if _, err := Find(root, ""); !errors.Is(err, ErrNotBuilt) || !strings.Contains(err.Error(), "make tools-cluster") {
			t.Fatalf("without %s: %v", s.name, err)
		}
		for _, p := range s.programs {
			if err := os.MkdirAll(s.dir(root), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(s.dir(root), p), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if found, err := Find(root, ""); err != nil || filepath.Base(found.Etcd) != "etcd" || filepath.Base(found.Kubectl) != "kubectl" {
		t.Errorf("%+v, %v", found, err)
	}
}
