package testbed

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/test/kit/process"
)

// stopGrace is how long a program may take to end by itself before it is killed.
const stopGrace = 5 * time.Second

// start runs a program with its output appended to dir/name.log. It dies with this process, however that ends. It starts where enter leads,
// which may be nil.
func start(enter func() error, name, dir, path string, args ...string) (*process.Process, error) {
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, who end it in order
	return process.StartInside(name, filepath.Join(dir, name+".log"), cmd, enter)
}

// stop asks a program to end and waits for that.
func stop(p *process.Process) { p.End(syscall.SIGTERM, stopGrace) }

// ready waits until check passes or the program ends.
func ready(ctx context.Context, p *process.Process, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := Until(ctx, what, func(ctx context.Context) error {
		if !p.Running() {
			return nil // no use waiting: Alive returns the error
		}
		return check(ctx)
	})
	if err != nil {
		return fmt.Errorf("%w; the log of %s ends:\n%s", err, p.Name(), p.Tail())
	}
	return p.Alive()
}
