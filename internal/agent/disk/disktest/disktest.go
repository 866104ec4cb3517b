// Package disktest makes small file systems, which are soon full, for tests. Only tests import it.
//
// Goroutines: none.
package disktest

import (
	"os"
	"syscall"
	"testing"
)

// Small returns a folder with a file system of 64 KiB of its own, which is unmounted when the test ends; a file that is
// still open then is an error. The test is skipped where file
// systems cannot be mounted.
func Small(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounting: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}
