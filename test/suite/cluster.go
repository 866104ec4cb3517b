package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// cluster runs the tests of the module test/cluster, after building what they run. Where nodes cannot run, or their
// programs cannot be had, the step is skipped as a whole and says why, once.
func cluster(ctx context.Context, dir string, w io.Writer) result {
	if err := canIsolate(ctx); err != nil {
		return skip(w, err)
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "tools-cluster")
	cmd.Dir = filepath.Join(dir, "..", "..")
	cmd.Stdout = io.MultiWriter(w, &said)
	cmd.Stderr = cmd.Stdout // the same value: then the command writes one after the other
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return result{failed: 1}
		}
		return skip(w, fmt.Errorf("`make tools-cluster` failed: %s", remedy(said.String())))
	}
	// One package after the other: each runs a cluster, and two at a time would only be slower. What they
	// depend on most, the kernel and the programs of Kubernetes, Go's cache of results knows nothing of.
	return goTest(ctx, dir, w, []string{"-p=1", "-count=1", "-timeout=20m", "./..."})
}

func skip(w io.Writer, why error) result {
	fmt.Fprintf(w, "skip cluster: %v\n", why)
	return result{skipped: []string{"cluster: " + why.Error()}}
}

// remedy is the last line of what the tool said before go and make told of its end: it tells what to do.
func remedy(said string) string {
	var kept []string
	for line := range strings.Lines(said) {
		if !strings.HasPrefix(line, "make") && !strings.HasPrefix(line, "exit status ") {
			kept = append(kept, line)
		}
	}
	return reason(kept)
}

// canIsolate says why no namespaces can be made here, before minutes are spent.
func canIsolate(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("nodes whose pods are processes in namespaces need root")
	}
	probe := exec.CommandContext(ctx, "/bin/true")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	if err := probe.Run(); err != nil {
		return fmt.Errorf("nodes need namespaces, which this machine does not allow: %w", err)
	}
	return nil
}
