package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pilotmesh/pilot/test/podrunner/stage"
)

// ProcessConfig says what a container is.
type ProcessConfig struct {
	// ID names the container on this machine.
	ID string
	// Spec has the command and the identity; where things are is filled in here.
	Spec stage.Spec
	// Root becomes "/", and each of Mounts gets its place on it. Start closes them all.
	Root   *Tree
	Mounts []Mount
	// Input keeps standard input open for Attach; else it is empty.
	Input bool
	// Terminal gives it a terminal instead of three pipes.
	Terminal bool
	// HostPID shows the machine's processes.
	HostPID bool
	Limits  Limits
	// Output reads what the process writes until the end of it; it runs once for each stream, "stdout" and "stderr".
	Output func(stream string, from io.Reader)
	// Ended is called with the exit, once, after Output has seen everything.
	Ended func(Exit)
}

// Mount is a tree and its place.
type Mount struct {
	Tree   *Tree
	Target string
}

// Exit is how a process ended.
type Exit struct {
	Code   int // as a shell would say: 128 and the signal when there was one
	Signal int
	OOM    bool // the kernel killed it for its memory
	At     time.Time
}

// Process is a container that was started.
type Process struct {
	config ProcessConfig
	pod    *Pod
	group  *group
	pid    int
	handle *os.File // the process's own descriptor, which no later process can inherit
	input  *os.File // our end of standard input, or the terminal
	master bool     // input is a terminal

	mu    sync.Mutex // held while a signal is sent, so that none goes to the process's successor
	ended bool
}

// Start starts a container. A *stage.StartError explains why its command cannot run.
func (p *Pod) Start(config ProcessConfig) (*Process, error) {
	defer func() {
		_ = config.Root.Close()
		for _, mount := range config.Mounts {
			_ = mount.Tree.Close()
		}
	}()
	process := &Process{config: config, pod: p}
	open := func() (*pipes, error) { return openPipes(config.Input) }
	if config.Terminal {
		open = func() (*pipes, error) { return openTerminal(machineTerminals) }
	}
	pipes, err := open()
	if err != nil {
		return nil, err
	}
	if process.group, err = p.host.groups.make(config.ID, config.Limits); err != nil {
		pipes.close()
		return nil, err
	}
	if err := process.spawn(pipes); err != nil {
		pipes.close()
		return nil, errors.Join(err, process.group.remove())
	}
	process.input, process.master = pipes.input, config.Terminal
	pipes.closeTheirs()
	p.mu.Lock()
	p.processes[config.ID] = process
	p.mu.Unlock()
	p.waiting.Go(func() { process.watch(pipes) })
	return process, nil
}

// spawn makes the process and waits until it runs its program.
func (p *Process) spawn(pipes *pipes) error {
	spec := p.config.Spec
	files := []*os.File{p.config.Root.file}
	spec.Root, spec.Base = stage.FirstFD, p.pod.host.base
	for i, mount := range p.config.Mounts {
		spec.Mounts = append(spec.Mounts, stage.Mount{FD: stage.FirstFD + 1 + i, Target: mount.Target, File: !mount.Tree.dir})
		files = append(files, mount.Tree.file)
	}
	spec.Terminal, spec.DieWithParent = p.config.Terminal, true
	flags := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWPID)
	if p.config.HostPID {
		flags = unix.CLONE_NEWNS
	}
	started, err := p.pod.host.start(p.pod.host.spawns.do, p.pod.host.config.Stage, spec, files, pipes.theirs, &syscall.SysProcAttr{
		Cloneflags: flags, Setsid: true, UseCgroupFD: p.group != nil, CgroupFD: p.group.fd(),
	}, p.pod.inside)
	if err != nil {
		return err
	}
	p.pid, p.handle = started.pid, started.handle
	return nil
}

// inside runs f on the calling thread in the pod's namespaces.
func (p *Pod) inside(f func() error) (err error) {
	entered := 0
	defer func() { err = errors.Join(err, p.host.back(entered)) }()
	for i, namespace := range namespaces {
		if p.shared[i] < 0 {
			continue
		}
		if err := unix.Setns(p.shared[i], namespace.flag); err != nil {
			return fmt.Errorf("enter the pod's %s namespace: %w", namespace.name, err)
		}
		entered |= namespace.flag
	}
	return f()
}

type started struct {
	pid    int
	handle *os.File
}

// start runs the stage program and waits until it has become the program that the spec names, or failed.
func (h *Host) start(on func(func() error) error, program string, spec stage.Spec, files, standard []*os.File, attributes *syscall.SysProcAttr, in func(func() error) error) (started, error) {
	text, err := specFile(spec)
	if err != nil {
		return started{}, err
	}
	defer text.Close()
	status, statusTheirs, err := os.Pipe()
	if err != nil {
		return started{}, fmt.Errorf("status pipe: %w", err)
	}
	defer status.Close()
	all := append(append(slices.Clone(standard), text, statusTheirs), files...)
	handle := -1
	attributes.PidFD = &handle
	var pid int
	err = on(func() error {
		return in(func() (err error) {
			pid, _, err = syscall.StartProcess(program, []string{"podrunner-init"}, &syscall.ProcAttr{
				Dir: "/", Env: []string{}, Files: descriptors(all), Sys: attributes,
			})
			return err
		})
	})
	statusTheirs.Close()
	if err != nil {
		return started{}, fmt.Errorf("start the stage program: %w", err)
	}
	if err := unix.SetNonblock(handle, true); err != nil {
		return started{}, fmt.Errorf("process descriptor: %w", err)
	}
	s := started{pid: pid, handle: os.NewFile(uintptr(handle), "process")}
	if err := stage.ReadStatus(status); err != nil {
		_ = control(s.handle, kill) // it is about to end by itself
		s.wait()
		return started{}, err
	}
	return s, nil
}

// descriptors are the numbers; the files stay open because the caller still has them.
func descriptors(files []*os.File) []uintptr {
	numbers := make([]uintptr, len(files))
	for i, file := range files {
		raw, err := file.SyscallConn()
		if err != nil {
			continue
		}
		_ = raw.Control(func(fd uintptr) { numbers[i] = fd })
	}
	return numbers
}

// specFile is a file in memory: a spec may be larger than a pipe takes without a reader.
func specFile(spec stage.Spec) (*os.File, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode the stage's spec: %w", err)
	}
	fd, err := unix.MemfdCreate("spec", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "spec")
	_, err = file.Write(text)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("file in memory: %w", err), file.Close())
	}
	return file, nil
}

// wait parks the goroutine, not a thread, until the process has ended, and reaps it.
func (s started) wait() Exit {
	defer s.handle.Close()
	var status unix.WaitStatus
	raw, err := s.handle.SyscallConn()
	if err == nil {
		err = raw.Read(func(uintptr) bool {
			reaped, err := unix.Wait4(s.pid, &status, unix.WNOHANG, nil)
			return reaped == s.pid || err != nil && !errors.Is(err, unix.EINTR)
		})
	}
	exit := Exit{Code: status.ExitStatus(), At: time.Now()}
	if err != nil {
		exit.Code = 255 // not known
	}
	if status.Signaled() {
		exit.Signal = int(status.Signal())
		exit.Code = 128 + exit.Signal
	}
	return exit
}

// watch waits for the end of the process and of its output.
func (p *Process) watch(pipes *pipes) {
	var reading sync.WaitGroup
	for stream, from := range pipes.outputs() {
		reading.Go(func() { p.config.Output(stream, from) })
	}
	exit := started{p.pid, p.handle}.waitLocked(&p.mu, &p.ended)
	p.group.kill() // what shared the machine's process ids is still there
	if p.config.Terminal {
		pipes.input.Close() // a terminal has no end by itself
	}
	reading.Wait()
	pipes.close()
	exit.OOM = p.group.oom()
	_ = p.group.remove()
	p.pod.mu.Lock()
	delete(p.pod.processes, p.config.ID)
	p.pod.mu.Unlock()
	p.config.Ended(exit)
}

// waitLocked is wait, but sets ended under the lock before the process's number is free.
func (s started) waitLocked(mu *sync.Mutex, ended *bool) Exit {
	raw, err := s.handle.SyscallConn()
	if err == nil {
		_ = raw.Read(func(fd uintptr) bool {
			var info unix.Siginfo
			err := unix.Waitid(unix.P_PIDFD, int(fd), &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
			return err == nil && info.Signo != 0 || err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN)
		})
	}
	mu.Lock()
	defer mu.Unlock()
	*ended = true
	return s.wait()
}

// PID is the process's number on the machine.
func (p *Process) PID() int { return p.pid }

// Signal sends a signal to the container's first process. One that has ended takes it silently.
func (p *Process) Signal(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil
	}
	err := control(p.handle, func(handle int) error { return unix.PidfdSendSignal(handle, signal, nil, 0) })
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send signal %d: %w", signal, err)
	}
	return nil
}

// kill ends the container; its PID namespace ends with it.
func (p *Process) kill() {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		p.group.kill()
	}
}

// Pause stops every process of the container where it stands, or resumes them.
func (p *Process) Pause(on bool) error {
	if p.group != nil {
		return p.group.freeze(on)
	}
	if on {
		return p.Signal(syscall.SIGSTOP)
	}
	return p.Signal(syscall.SIGCONT)
}
