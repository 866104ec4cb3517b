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

// cluster runs the tests of the module test/cluster, after building the programs they run. Where nodes cannot run, or their programs cannot be built,
// the step is skipped as a whole and says why, once.
func cluster(ctx context.Context, dir string, w io.Writer) result {
	if why := clusterTools(ctx, filepath.Join(dir, "..", ".."), w); why != nil {
		return without(ctx, "cluster", w, why)
	}
	// The package proxies wants no request to be lost, also while Kubernetes replaces pods, so it has the machine to itself. The others wait more than they
	// work, and three run at a time, each with a cluster of its own. Go's cache of results does not see their main dependencies, the kernel and the programs of
	// Kubernetes.
	const alone = "/test/cluster/proxies"
	others, err := list(ctx, dir, func(p string) bool { return !strings.HasSuffix(p, alone) })
	if err != nil {
		fmt.Fprintf(w, "FAIL %v\n", err)
		return result{failed: 1}
	}
	flags := []string{"-count=1", "-timeout=20m"}
	first := goTest(ctx, dir, w, append(flags, "./proxies"))
	rest := goTest(ctx, dir, w, append(append(flags, "-p=3"), others...))
	return result{passed: first.passed + rest.passed, failed: first.failed + rest.failed, skipped: append(first.skipped, rest.skipped...)}
}

// clusterDemo runs the demo on a cluster, where clusters can run.
func clusterDemo(ctx context.Context, dir string, w io.Writer) result {
	if why := clusterTools(ctx, dir, w); why != nil {
		return without(ctx, "kubedemo", w, why)
	}
	return command("", "", "", "make", "--no-print-directory", "demo-cluster", "CI=1").run(ctx, dir, w)
}

// clusterTools builds what a cluster runs, and returns why none can run here.
func clusterTools(ctx context.Context, root string, w io.Writer) error {
	if err := canIsolate(ctx); err != nil {
		return err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "tools-cluster")
	cmd.Dir = root
	cmd.Stdout = io.MultiWriter(w, &said)
	cmd.Stderr = cmd.Stdout // the same value: then the command writes one after the other
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("`make tools-cluster` failed: %s", remedy(said.String()))
	}
	return nil
}

// without is the result of a step that cannot run. One that was interrupted has failed.
func without(ctx context.Context, step string, w io.Writer, why error) result {
	if ctx.Err() != nil {
		return result{failed: 1}
	}
	fmt.Fprintf(w, "skip %s: %v\n", step, why)
	return result{skipped: []string{step + ": " + why.Error()}}
}

// remedy is the last line that the tool printed before go and make reported its end: the remedy.
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
