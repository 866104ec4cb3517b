package environment

import (
	"os/exec"
	"runtime"
	"syscall"
)

// spawner starts processes that die with this one. The kernel ties that to the starting *thread*, so one thread is kept
// for it.
type spawner chan func()

// newSpawner returns a spawner and what ends its goroutine; the processes it started must have ended by then.
func newSpawner() (spawner, func()) {
	s := make(spawner)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		for f := range s {
			f()
		}
	}()
	return s, func() {
		close(s)
		<-done
	}
}

func (s spawner) start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	done := make(chan error)
	s <- func() { done <- cmd.Start() }
	return <-done
}
