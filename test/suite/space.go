package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// spaceNeeded is how many bytes the whole suite writes where Go has compiled nothing yet: packages with and without the race detector,
// a Kubernetes, and programs and folders of tests.
const spaceNeeded = 40 << 30

// warnOfSpace writes a line for each place in which builds write if it has less space than a suite needs. Where packages are compiled already
// less is enough, so it is no reason to end.
func warnOfSpace(ctx context.Context, w io.Writer) {
	places := []string{os.TempDir()}
	if out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output(); err == nil {
		places = append(places, strings.TrimSpace(string(out)))
	}
	for _, place := range places {
		if free, err := freeSpace(place); err == nil && free < spaceNeeded {
			fmt.Fprintf(w, "suite: %s has %d GB free, and a suite that compiles everything writes up to %d GB: if a step says that no space is left, empty %[1]s, or `go clean -cache`\n",
				place, free>>30, spaceNeeded>>30)
		}
	}
}

// freeSpace returns how many bytes can be written below a folder that may not exist yet.
func freeSpace(place string) (uint64, error) {
	var stat syscall.Statfs_t
	err := syscall.Statfs(place, &stat)
	if parent := filepath.Dir(place); os.IsNotExist(err) && parent != place {
		return freeSpace(parent)
	}
	return stat.Bavail * uint64(stat.Bsize), err
}
