package agent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestRefusedStart: flags that do not exist are remarked upon, and a start that cannot succeed ends at once.
func TestRefusedStart(t *testing.T) {
	t.Parallel()
	pipe, locked := filepath.Join(t.TempDir(), "pipe"), t.TempDir()
	folder, err := os.Open(locked)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Close() })
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), syscall.Flock(int(folder.Fd()), syscall.LOCK_EX)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env, flag string
		code      int
		want      string
	}{
		{"X=", "--bogus=1", 1, "--bogus=1 has no effect: there is no such flag"},
		{"ISTIO_BOOTSTRAP_OVERRIDE=" + pipe, "--id=", 2, "pipe is not a regular file"},
		{"ENVOY=" + envoyBinary, "--configPath=" + locked, 1, "another agent runs with the folder " + locked},
	} {
		if code, out := command(t, []string{c.env}, "proxy", "sidecar", "--discoveryAddress=127.0.0.1:1", c.flag); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s %s: exit code %d, want %d with %q:\n%s", c.env, c.flag, code, c.code, c.want, out)
		}
	}
}

// TestSignalBeforeEnvoy: the first signal ends an agent that is still starting, whatever it waits for: here a binary that does not answer.
func TestSignalBeforeEnvoy(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	asked := filepath.Join(t.TempDir(), "asked")
	binary := write(t, "envoy", "#!/bin/sh\ntouch "+asked+"\nexec sleep 1000\n")
	if err := os.Chmod(binary, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, agentBinary, "proxy", "--discoveryAddress=127.0.0.1:1")
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin", "INSTANCE_IP=127.1.0.1", "ENVOY=" + binary}, t.TempDir()
	var out bytes.Buffer
	cmd.Stderr = &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }() // the binary
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for _, err := os.Stat(asked); err != nil; _, err = os.Stat(asked) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the binary was not asked for its version")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	cmd.WaitDelay = time.Second // the binary has the output, too
	if err := cmd.Wait(); err != nil && !errors.Is(err, exec.ErrWaitDelay) || !strings.Contains(out.String(), "received a signal to stop before Envoy was started") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestStartOnFullDisk: an agent starts on a disk without space, with the bootstrap in memory, and Envoy runs.
func TestStartOnFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(dir, "junk"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBed(t)
	b.serve()
	a := b.ready(options("--configPath="+dir), testbed.Node{})
	pids, err := a.EnvoyPIDs()
	if err != nil || len(pids) != 1 {
		t.Fatalf("Envoys: %v, %v", pids, err)
	}
	if text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pids[0]), "cmdline")); err != nil || !strings.Contains(string(text), "/dev/fd/3") {
		t.Errorf("%q, %v", text, err)
	}
	b.answers()
}
