package envoy

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

// Process is a running Envoy.
type Process struct {
	cmd    *exec.Cmd
	waiter sync.WaitGroup
	killed atomic.Bool // by us
	ended  chan struct{}
	err    error // once ended is closed
}

// Start runs the binary.
func Start(o Options) (*Process, error) {
	p := &Process{cmd: &exec.Cmd{Path: o.Binary, Args: append([]string{o.Binary}, o.Args()...)}, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = o.Stdout, o.Stderr
	p.cmd.SysProcAttr = attributes()
	started := make(chan error)
	p.waiter.Go(func() {
		// The kernel kills the child when the thread that made it ends, not the process: the thread is kept.
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

// Hopeless reports whether an error of Start will come again.
func Hopeless(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOEXEC)
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Terminate asks Envoy to end.
func (p *Process) Terminate() error { return p.cmd.Process.Signal(syscall.SIGTERM) }

// Kill ends Envoy and whatever it has started.
func (p *Process) Kill() error {
	select {
	case <-p.ended:
		return nil // its number may be another process's by now
	default:
		p.killed.Store(true)
		return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// Wait blocks until Envoy has ended. The error says how; nil means with success.
func (p *Process) Wait() error {
	<-p.ended
	p.waiter.Wait()
	return p.err
}

// describe says what is likely behind an end that nobody here has brought about.
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
		return fmt.Errorf("%w (unless somebody killed it, it ran out of memory: raise the limit of its container)", err)
	case syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGILL:
		return fmt.Errorf("%w (a mistake in Envoy: its last words are in its output)", err)
	default:
		return err
	}
}
