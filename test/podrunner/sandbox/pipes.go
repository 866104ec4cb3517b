package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// pipes are a process's standard input, output and error: their ends and ours.
type pipes struct {
	theirs []*os.File
	input  *os.File // nil when there is none; with a terminal, the terminal
	output *os.File
	errors *os.File
}

func openPipes(input bool) (*pipes, error) {
	p := new(pipes)
	err := p.open(input)
	if err != nil {
		p.close()
		return nil, fmt.Errorf("pipes: %w", err)
	}
	return p, nil
}

func (p *pipes) open(input bool) (err error) {
	var their *os.File
	if input {
		their, p.input, err = pipe(false)
	} else {
		their, err = os.Open(os.DevNull)
	}
	if err != nil {
		return err
	}
	p.theirs = append(p.theirs, their)
	for _, our := range []**os.File{&p.output, &p.errors} {
		if *our, their, err = pipe(true); err != nil {
			return err
		}
		p.theirs = append(p.theirs, their)
	}
	return nil
}

// pipe makes a pipe with only our end for Go's poller: programs expect to be blocked. It returns the reader's end first.
func pipe(weRead bool) (reader, writer *os.File, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	our := ends[1]
	if weRead {
		our = ends[0]
	}
	if err := unix.SetNonblock(our, true); err != nil {
		_ = unix.Close(ends[0])
		_ = unix.Close(ends[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(ends[0]), "pipe"), os.NewFile(uintptr(ends[1]), "pipe"), nil
}

// machineTerminals makes terminals of the machine.
const machineTerminals = "/dev/ptmx"

// openTerminal makes a terminal where the file for that is: in a container, so that it has a name there.
func openTerminal(maker string) (*pipes, error) {
	master, err := os.OpenFile(maker, os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	var slave uintptr
	err = control(master, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		var number unix.Errno
		slave, _, number = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if number != 0 {
			return number
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("terminal: %w", err), master.Close())
	}
	file := os.NewFile(slave, "terminal")
	return &pipes{theirs: []*os.File{file, file, file}, input: master, output: master}, nil
}

// resize sets the size of a terminal.
func resize(terminal *os.File, width, height uint16) error {
	return control(terminal, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
	})
}

func control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) { err = f(int(fd)) }), err)
}

// outputs are our ends of what the process writes.
func (p *pipes) outputs() map[string]io.Reader {
	outputs := map[string]io.Reader{"stdout": p.output}
	if p.errors != nil {
		outputs["stderr"] = p.errors
	}
	return outputs
}

func (p *pipes) closeTheirs() {
	for _, file := range p.theirs {
		file.Close() // a terminal stands here three times: closing it again does nothing
	}
	p.theirs = nil
}

func (p *pipes) close() {
	p.closeTheirs()
	for _, file := range []*os.File{p.input, p.output, p.errors} {
		if file != nil {
			file.Close()
		}
	}
}
