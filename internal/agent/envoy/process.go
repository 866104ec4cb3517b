package envoy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Process is a running Envoy.
type Process struct {
	cmd    *exec.Cmd
	waiter sync.WaitGroup
	killed atomic.Bool // by Kill
	ended  chan struct{}
	err    error // valid once ended is closed
}

// Start starts the binary with an environment, as NAME=value; without any it has the agent's own.
func Start(o Options, env ...string) (*Process, error) {
	p := &Process{cmd: &exec.Cmd{Path: o.Binary, Args: append([]string{o.Binary}, o.Args()...)}, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = o.Stdout, o.Stderr, env
	p.cmd.SysProcAttr = attributes()
	if o.Text != "" {
		file, err := inMemory(o.Text)
		if err != nil {
			return nil, fmt.Errorf("starting Envoy: its bootstrap cannot be kept in memory: %w", err)
		}
		defer file.Close() // Envoy has a file descriptor of its own then
		p.cmd.ExtraFiles = []*os.File{file}
	}
	started := make(chan error)
	p.waiter.Go(func() {
		// The kernel kills the child when the thread that started it ends (PR_SET_PDEATHSIG), so the thread is locked.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = describe(p.cmd.Wait(), p.killed.Load)
			close(p.ended)
		}
	})
	if err := <-started; err != nil {
		p.waiter.Wait()
		return nil, fmt.Errorf("starting Envoy: %w", err)
	}
	return p, nil
}

// Permanent reports whether an error of Start would occur again.
func Permanent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOEXEC)
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Suspended reports whether a signal or a debugger has suspended the process.
func (p *Process) Suspended() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return false
	}
	// The state is behind the name, which is in parentheses and may contain anything.
	_, state, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	return strings.HasPrefix(state, "T") || strings.HasPrefix(state, "t")
}

// Terminate asks Envoy to exit.
func (p *Process) Terminate() error { return p.cmd.Process.Signal(syscall.SIGTERM) }

// Kill kills Envoy and all processes in its group.
func (p *Process) Kill() error {
	select {
	case <-p.ended:
		return nil // another process may have the process id by now
	default:
		p.killed.Store(true)
		return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// Wait blocks until Envoy has exited. It returns nil if the exit code was 0.
func (p *Process) Wait() error {
	<-p.ended
	p.waiter.Wait()
	return p.err
}

// describe adds the likely cause to the error of a process that the agent has not killed.
func describe(err error, killed func() bool) error {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return err
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || killed() {
		return err
	}
	switch status.Signal() {
	case syscall.SIGKILL:
		return fmt.Errorf("%w (unless a user killed it, it ran out of memory; raise the memory limit of its container)", err)
	case syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGILL:
		return fmt.Errorf("%w (a bug in Envoy; see the end of its output)", err)
	default:
		return err
	}
}
