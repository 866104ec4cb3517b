package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// stopGrace is how long a program may take to end by itself before it is killed.
const stopGrace = 5 * time.Second

// process is a program that runs beside the test. One goroutine waits for its end.
type process struct {
	name, log string
	cmd       *exec.Cmd
	done      chan struct{}
	err       error // of Wait; read after done
}

// start runs a program with its output appended to dir/name.log. It dies with this process, however that ends.
func start(name, dir, path string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer out.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// alive returns an error with the end of the log if the program has ended.
func (p *process) alive() error {
	if p.running() {
		return nil
	}
	return fmt.Errorf("%s has ended (%w); its log %s ends:\n%s", p.name, p.ended(), p.log, p.tail())
}

func (p *process) ended() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// signal sends sig and waits for the end.
func (p *process) signal(sig syscall.Signal) {
	// An error means that it has ended, which is what is wanted.
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

func (p *process) stop() { p.signal(syscall.SIGTERM) }
func (p *process) kill() { p.signal(syscall.SIGKILL) }

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

// ready waits until check passes or the program ends.
func (p *process) ready(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := Until(ctx, what, func(ctx context.Context) error {
		if !p.running() {
			return nil // no use waiting: alive tells
		}
		return check(ctx)
	})
	if err != nil {
		return fmt.Errorf("%w; the log of %s ends:\n%s", err, p.name, p.tail())
	}
	return p.alive()
}
