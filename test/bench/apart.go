package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// apartEnv makes the program run only a part of a measurement, which needs a process of its own.
const apartEnv = "PILOT_BENCH_APART"

// apartTask is such a part: exactly one field is set.
type apartTask struct {
	Retained  *retainedTask
	Clients   *clientsTask
	Arrivals  *arrivalsTask
	Residents *residentsTask
	Hostile   *hostileTask
	Fleet     *fleetTask
}

// process is this program once more, with a task.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr bytes.Buffer
	// reading is a goroutine that waits for output of the process; it ends with the process at the latest.
	reading sync.WaitGroup
}

// apart starts a task. Its process ends with the bench at the latest.
func (b *bench) apart(t apartTask) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	task, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(b.ctx, self)}
	p.cmd.Env = append(os.Environ(), apartEnv+"="+string(task))
	p.cmd.Stderr = &p.stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdin, p.stdout = stdin, bufio.NewReader(stdout)
	return p, p.cmd.Start()
}

// line waits for the next line of output of the process.
func (p *process) line() (string, error) {
	text, err := p.stdout.ReadString('\n')
	return strings.TrimSpace(text), err
}

// expect waits for a line that the process is to say.
func (p *process) expect(want string) error {
	got, err := p.line()
	if err == nil && got != want {
		err = fmt.Errorf("the process says %q, not %q", got, want)
	}
	return err
}

// end lets the process end, and waits for that.
func (p *process) end() error {
	_ = p.stdin.Close() // it may have ended
	p.reading.Wait()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(p.stderr.Bytes()))
	}
	return nil
}

// runApart carries out the task that the environment asks for.
func runApart(ctx context.Context, task string) error {
	var t apartTask
	if err := json.Unmarshal([]byte(task), &t); err != nil {
		return fmt.Errorf("%s: %w", apartEnv, err)
	}
	switch {
	case t.Retained != nil:
		return t.Retained.run(ctx, os.Stdout)
	case t.Clients != nil:
		return t.Clients.run(ctx, os.Stdin, os.Stdout)
	case t.Arrivals != nil:
		return t.Arrivals.run(ctx, os.Stdin, os.Stdout)
	case t.Residents != nil:
		return t.Residents.run(ctx, os.Stdin, os.Stdout)
	case t.Hostile != nil:
		return t.Hostile.run(ctx, os.Stdin, os.Stdout)
	case t.Fleet != nil:
		return t.Fleet.run(ctx, os.Stdin, os.Stdout)
	}
	return errors.New(apartEnv + " names no task")
}

// clientsTask is a fleet of settled clients in a process of its own, so that the server's CPU time can be measured without theirs.
type clientsTask struct {
	Addr           string // of the server
	Streams, Conns int
}

// run prints "settled" when the clients have all they asked for. When in ends, it prints how many resources and removals came since then.
func (t clientsTask) run(ctx context.Context, in io.Reader, out io.Writer) error {
	conns, err := dial(t.Addr, 1)
	if err != nil {
		return err
	}
	defer hangUp(conns)
	scripts, err := learnAll(ctx, conns[0], 0, wide)
	if err != nil {
		return err
	}
	f, err := connect(t.Addr, fleetSize{streams: t.Streams, conns: t.Conns, variant: delta, first: wide}, scripts)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.wait(f.settled, "the first answers"); err != nil {
		return err
	}
	before := f.totals()
	if _, err := fmt.Fprintln(out, "settled"); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, f.totals().minus(before).things())
	return err
}
