package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pilotmesh/pilot/internal/run"
)

// TestCollateral: a release asks the program for the pages about its own commands.
func TestCollateral(t *testing.T) {
	dir := t.TempDir()
	if code := run.Command(t.Context(), root(), []string{"collateral", "--man", "--bash", "--zsh", "-o", dir}); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, pattern := range []string{"*.1", "*.bash", "_*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) == 0 {
			files, _ := os.ReadDir(dir)
			t.Errorf("no file %s: %v", pattern, files)
		}
	}
}
