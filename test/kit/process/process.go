// Package process runs programs that end with the program that started them.
//
// It owns each process from Start until the process has ended. The kernel ties "dies with its parent" (PR_SET_PDEATHSIG) to
// the thread that started the process, not to the whole parent, and the Go runtime may end a thread at any time. So each
// process has one goroutine that is locked to its thread: it starts the process, waits for its end, and only then gives the
// thread back. The package has no other goroutines. A Process may be used from several goroutines.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Process is a program that runs beside this one, or has run.
type Process struct {
	name, log string
	cmd       *exec.Cmd
	enter     func() error // nil: nothing
	done      chan struct{}
	err       error // of Wait; read after done
}

// Start starts cmd and returns. The process is killed when this one ends, however that happens. Start sets the parent-death
// signal in cmd.SysProcAttr and leaves the rest of cmd as it is. The caller must not call cmd.Wait.
func Start(cmd *exec.Cmd) (*Process, error) {
	return start(&Process{name: filepath.Base(cmd.Path), cmd: cmd, done: make(chan struct{})})
}

// StartLogged is Start for a program that is called name in errors, with its output appended to the file log.
func StartLogged(name, log string, cmd *exec.Cmd) (*Process, error) {
	return StartInside(name, log, cmd, nil)
}

// StartInside is StartLogged for a program that starts where enter leads the thread that it is called on, for instance into a network
// namespace. That thread ends with the process.
func StartInside(name, log string, cmd *exec.Cmd, enter func() error) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer out.Close() // the process has its own descriptor
	cmd.Stdout, cmd.Stderr = out, out
	return start(&Process{name: name, log: log, cmd: cmd, enter: enter, done: make(chan struct{})})
}

func start(p *Process) (*Process, error) {
	if p.cmd.SysProcAttr == nil {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		if p.enter == nil {
			defer runtime.UnlockOSThread()
		} else {
			err = p.enter()
		}
		if err == nil {
			err = p.cmd.Start()
		}
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	return p, nil
}

// Name is what the process is called in errors.
func (p *Process) Name() string { return p.name }

// Log is the path of the file with its output, "" if it has none.
func (p *Process) Log() string { return p.log }

// PID is its number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// State waits for the end of the process and returns what the system says of it.
func (p *Process) State() *os.ProcessState {
	<-p.done
	return p.cmd.ProcessState
}

// Alive returns nil while the process runs, and then an error that says how it ended, with the end of its log.
func (p *Process) Alive() error {
	if p.Running() {
		return nil
	}
	err := p.err
	if err == nil {
		err = errors.New("exit status 0")
	}
	if p.log == "" {
		return fmt.Errorf("%s has ended (%w)", p.name, err)
	}
	return fmt.Errorf("%s has ended (%w); its log %s ends:\n%s", p.name, err, p.log, p.Tail())
}

// Signal sends a signal and does not wait. It is an error if the process has ended.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("sending %s to %s: %w", s, p.name, err)
	}
	return nil
}

// End sends a signal and waits until the process has ended. A process that does not end within grace is killed.
func (p *Process) End(s os.Signal, grace time.Duration) {
	_ = p.cmd.Process.Signal(s) // an error means that it has ended, as wanted
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.Kill()
	}
}

// Kill ends the process by force and waits until it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended, as wanted
	<-p.done
}

// Tail is the end of the log.
func (p *Process) Tail() string {
	const keep = 4 << 10
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	if len(text) > keep {
		text = append([]byte("...\n"), text[len(text)-keep:]...)
	}
	return string(bytes.TrimSpace(text))
}
