package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/test/kit/process"
)

// stopGrace is how long a program may take to end by itself before it is killed.
const stopGrace = 10 * time.Second

// program is a program of the control plane, which may be stopped and started again.
type program struct {
	name, log, path string
	args            []string
	lost            func(error) // called when the program ends without being stopped

	mu       sync.Mutex
	run      *process.Process // the present one; nil before the first
	stopping bool             // the present run is being ended
	watching sync.WaitGroup   // a goroutine for each run
}

// start begins a run. The log of all runs is one file.
func (p *program) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir = filepath.Dir(p.log)
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run, err := process.StartLogged(p.name, p.log, cmd)
	if err != nil {
		return err
	}
	p.run, p.stopping = run, false
	p.watching.Go(func() {
		<-run.Done()
		p.mu.Lock()
		unasked := !p.stopping
		p.mu.Unlock()
		if unasked {
			p.lost(run.Alive())
		}
	})
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

// ended returns nil while the program runs, and otherwise an error with the end of its log.
func (p *program) ended() error {
	if run := p.present(); run != nil {
		return run.Alive()
	}
	return fmt.Errorf("%s was not started", p.name)
}

func (p *program) present() *process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// stop ends the present run: by SIGTERM, and after grace by force.
func (p *program) stop(grace time.Duration) {
	p.mu.Lock()
	run := p.run
	p.stopping = true
	p.mu.Unlock()
	switch {
	case run == nil:
	case grace > 0:
		run.End(syscall.SIGTERM, grace)
	default:
		run.Kill()
	}
	p.watching.Wait()
}

// signal sends sig to a program that runs.
func (p *program) signal(sig syscall.Signal) error {
	if err := p.ended(); err != nil {
		return err
	}
	return p.present().Signal(sig)
}

// state is the kernel's state of the present run: "S (sleeping)", or "T (stopped)" if the program was frozen.
func (p *program) state() string {
	run := p.present()
	if run == nil {
		return "not started"
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", run.PID()))
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
func (p *program) tail() string {
	if run := p.present(); run != nil {
		return run.Tail()
	}
	return "there is none"
}
