package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// nursery starts processes from one thread. A process dies with the thread that started it (PR_SET_PDEATHSIG), and the Go
// runtime ends threads when it likes: those that package podrunner puts into namespaces, for one.
type nursery struct {
	work chan func()
	done chan struct{}
}

func newNursery() *nursery {
	n := &nursery{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(n.done)
		runtime.LockOSThread() // and never unlocked: with the goroutine the thread ends, and with it what it started
		for f := range n.work {
			f()
		}
	}()
	return n
}

// start runs cmd.Start on the nursery's thread.
func (n *nursery) start(cmd *exec.Cmd) error {
	result := make(chan error)
	n.work <- func() { result <- cmd.Start() }
	return <-result
}

func (n *nursery) close() {
	close(n.work)
	<-n.done
}

// stopGrace is how long a program may take to end by itself before it is killed.
const stopGrace = 10 * time.Second

// process is a program of the control plane, which may be stopped and started again.
type process struct {
	name, log, path string
	args            []string
	nursery         *nursery
	lost            func(error) // is told when it ends though nobody stopped it

	mu       sync.Mutex
	cmd      *exec.Cmd
	done     chan struct{} // of the present run; nil before the first
	err      error         // of its end; read after done
	stopping bool          // the present run is being ended
}

// start begins a run. The log of all runs is one file.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	defer out.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = filepath.Dir(p.log)
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.nursery.start(cmd); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done, p.stopping = cmd, done, false
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.err = err
		unasked := !p.stopping
		p.mu.Unlock()
		close(done)
		if unasked {
			p.lost(p.ended())
		}
	}()
	return nil
}

// environment is this process's without what would send the control plane's own traffic through a proxy.
func environment() []string {
	var kept []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			kept = append(kept, e)
		}
	}
	return kept
}

// ended returns nil while the process runs, and otherwise an error with the end of its log.
func (p *process) ended() error {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	if done == nil {
		return fmt.Errorf("%s was not started", p.name)
	}
	select {
	case <-done:
	default:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.err
	if err == nil {
		err = errors.New("exit status 0")
	}
	return fmt.Errorf("%s has ended (%w); its log %s ends:\n%s", p.name, err, p.log, p.tail())
}

// stop ends the present run: by SIGTERM, and after grace by force.
func (p *process) stop(grace time.Duration) {
	p.mu.Lock()
	cmd, done := p.cmd, p.done
	p.stopping = true
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	// Errors mean that it has ended, which is what is wanted.
	if grace > 0 {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-done:
			return
		case <-timer.C:
		}
	}
	_ = cmd.Process.Kill()
	<-done
}

// signal sends sig to a process that runs.
func (p *process) signal(sig syscall.Signal) error {
	if err := p.ended(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("sending %s to %s: %w", sig, p.name, err)
	}
	return nil
}

// state is what the kernel says of the present run: "S (sleeping)", or "T (stopped)" if somebody froze it.
func (p *process) state() string {
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	if cmd == nil {
		return "not started"
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		return "ended"
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "State:"); ok {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// tail is the end of the log.
func (p *process) tail() string {
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
