package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// parent is set in the environment of the process that TestDiesWithParent kills.
const parent = "PILOT_KIT_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parent) != "" {
		os.Exit(beParent())
	}
	os.Exit(m.Run())
}

// beParent starts a process, makes the runtime end many threads, says the number of the process, and waits to be killed.
func beParent() int {
	p, err := Start(exec.Command("/bin/sleep", "1000"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	var ending sync.WaitGroup
	for range 50 {
		ending.Go(runtime.LockOSThread) // a goroutine that ends locked takes its thread with it
	}
	ending.Wait()
	if err := p.Alive(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(p.PID())
	<-p.Done()
	return 1
}

// TestDiesWithParent: a process lives as long as the process that started it, and no longer.
func TestDiesWithParent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), parent+"=1")
	// The child shares this pipe: it reaches its end only when both processes are gone.
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd.Stdout = write
	p, err := Start(cmd)
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(read).ReadString('\n')
	p.Kill()
	pid, bad := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || bad != nil {
		t.Fatalf("the parent said %q (%v)", line, err)
	}
	for deadline := time.Now().Add(10 * time.Second); !gone(pid); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("process %d outlives its parent", pid)
		}
	}
}

// gone reports whether a process has ended, also if no process has collected its exit status yet.
func gone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(text), ") Z ")
}

// TestEnd: the end of a process by itself is reported with the last lines of its log; one that does not want to end is killed.
func TestEnd(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := StartLogged("talker", log, exec.Command("/bin/sh", "-c", "echo last words; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := p.Alive(); err == nil || !strings.Contains(err.Error(), "talker has ended (exit status 3)") || !strings.Contains(err.Error(), "last words") {
		t.Errorf("%v", err)
	}
	if p.State().ExitCode() != 3 || p.Signal(syscall.SIGTERM) == nil {
		t.Errorf("state %v, and a signal reaches it", p.State())
	}
	read, write := io.Pipe()
	defer func() { _ = read.Close() }()
	stubborn := exec.Command("/bin/sh", "-c", "trap '' TERM; echo ready; while :; do read x; done")
	stubborn.Stdout = write
	if p, err = Start(stubborn); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(read).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	p.End(syscall.SIGTERM, 10*time.Millisecond)
	if p.Running() || !strings.Contains(p.Alive().Error(), "killed") {
		t.Errorf("it still runs, or was not killed: %v", p.Alive())
	}
}

// TestStartFails: the error says what could not be started, and why.
func TestStartFails(t *testing.T) {
	if _, err := Start(exec.Command("/nowhere/program")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "starting program") {
		t.Errorf("%v", err)
	}
}
