package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pilotmesh/pilot/test/podrunner/stage"
)

// Streams are what a process inside a container is connected to. Any may be nil.
type Streams struct {
	Input         io.Reader
	Output, Error io.Writer
	Terminal      bool
	Sizes         <-chan Size // of the terminal; closed at the end
}

// Size is a terminal's, in characters.
type Size struct{ Width, Height uint16 }

// ErrEnded means that the container does not run any more.
var ErrEnded = errors.New("the container is not running")

// Exec runs another process in the container, until it ends or the context does, and returns its exit code. A *stage.StartError explains why the
// command cannot run.
func (p *Process) Exec(ctx context.Context, spec stage.Spec, streams Streams) (int, error) {
	pipes, err := p.pipes(streams)
	if err != nil {
		return 0, err
	}
	spec.Join, spec.Terminal = true, streams.Terminal
	attributes := &syscall.SysProcAttr{Setsid: true, UseCgroupFD: p.group != nil, CgroupFD: p.group.fd()}
	// The program is not in the container, but its descriptor is open when the stage starts.
	program := fmt.Sprintf("/proc/self/fd/%d", stage.FirstFD)
	started, err := p.pod.host.start(once, program, spec, []*os.File{p.pod.host.stage}, pipes.theirs, attributes, p.join)
	if err != nil {
		pipes.close()
		return 0, err
	}
	pipes.closeTheirs()
	stop := context.AfterFunc(ctx, func() { _ = control(started.handle, kill) })
	defer stop()
	finish := connect(pipes, streams)
	exit := started.wait()
	finish()
	if ctx.Err() != nil {
		return exit.Code, fmt.Errorf("command did not end in time: %w", context.Cause(ctx))
	}
	return exit.Code, nil
}

// pipes are for a process that joins this one.
func (p *Process) pipes(streams Streams) (*pipes, error) {
	if !streams.Terminal {
		return openPipes(streams.Input != nil)
	}
	p.mu.Lock() // the number must stay this process's while its root is looked up
	defer p.mu.Unlock()
	if p.ended {
		return nil, ErrEnded
	}
	return openTerminal(fmt.Sprintf("/proc/%d/root/dev/pts/ptmx", p.pid))
}

func kill(handle int) error { return unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0) }

// join runs f inside the container's namespaces, on a thread that is thrown away.
func (p *Process) join(f func() error) error {
	// A thread may only change to another mount namespace when it shares its root and directory with no other.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return ErrEnded
	}
	flags := unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	err := control(p.handle, func(handle int) error { return unix.Setns(handle, flags) })
	p.mu.Unlock()
	if errors.Is(err, unix.ESRCH) {
		return ErrEnded
	}
	if err != nil {
		return fmt.Errorf("enter the container: %w", err)
	}
	return f()
}

// connect copies between pipes and streams; the function it returns waits until everything that was written is copied.
func connect(pipes *pipes, streams Streams) (finish func()) {
	var outputs, inputs sync.WaitGroup
	if streams.Input != nil {
		inputs.Go(func() {
			_, _ = io.Copy(pipes.input, streams.Input) // either end may go first
			if !streams.Terminal {
				pipes.input.Close()
			}
		})
	}
	if streams.Terminal && streams.Sizes != nil {
		inputs.Go(func() {
			for size := range streams.Sizes {
				_ = resize(pipes.input, size.Width, size.Height)
			}
		})
	}
	outputs.Go(func() { copyTo(streams.Output, pipes.output) })
	if pipes.errors != nil {
		outputs.Go(func() { copyTo(streams.Error, pipes.errors) })
	}
	return func() {
		outputs.Wait()
		// The caller ends Input and Sizes with the connection, after we return; until then their
		// goroutines end at the closed pipe.
		pipes.close()
	}
}

func copyTo(to io.Writer, from io.Reader) {
	if to == nil {
		to = io.Discard
	}
	_, _ = io.Copy(to, from) // a terminal ends with an error, and a reader that has left is not ours to mourn
}

// Attach copies a reader to the container's standard input, until either ends. With closes, the container sees the end.
func (p *Process) Attach(input io.Reader, closes bool) error {
	if p.input == nil {
		return errors.New("the container has no standard input (set stdin: true)")
	}
	_, err := io.Copy(p.input, input)
	if closes && !p.master {
		err = errors.Join(err, p.input.Close())
	}
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// Resize sets the size of the container's terminal.
func (p *Process) Resize(size Size) error {
	if !p.master {
		return nil
	}
	return resize(p.input, size.Width, size.Height)
}
