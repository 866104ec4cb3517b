package stage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Run does what the Spec on its descriptor says. It returns only when it fails, with the exit code.
func Run() int {
	runtime.LockOSThread()
	unix.CloseOnExec(SpecFD)
	unix.CloseOnExec(StatusFD)
	status := os.NewFile(StatusFD, "status")
	err := run(os.NewFile(SpecFD, "spec"))
	failure, ok := errors.AsType[*StartError](err)
	if !ok {
		failure = &StartError{Message: err.Error()}
	}
	if text, err := json.Marshal(failure); err == nil && status != nil {
		_, _ = status.Write(text) // it fails if this was not started as a stage; the exit code then suffices
	}
	return 127
}

func run(from *os.File) error {
	if from == nil {
		return errors.New("no spec: this program is started by podrunner, not by hand")
	}
	var spec Spec
	if err := json.NewDecoder(from).Decode(&spec); err != nil {
		return fmt.Errorf("read the spec: %w", err)
	}
	from.Close()
	closeOnExec(FirstFD)
	if !spec.Join {
		if err := root(&spec); err != nil {
			return err
		}
	}
	if err := enter(&spec); err != nil {
		return err
	}
	program, err := find(&spec)
	if err != nil {
		return err
	}
	if err := become(&spec); err != nil {
		return err
	}
	err = syscall.Exec(program, spec.Args, spec.Env)
	return &StartError{Command: true, Message: fmt.Sprintf("exec: %q: %v", spec.Args[0], err)}
}

// closeOnExec keeps every descriptor from first on out of the container's program.
func closeOnExec(first uint) {
	_ = unix.CloseRange(first, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
}

// enter takes the terminal and the working directory, which a runtime makes when it is missing.
func enter(spec *Spec) error {
	if spec.Terminal {
		if err := unix.IoctlSetInt(0, unix.TIOCSCTTY, 0); err != nil {
			return fmt.Errorf("take the terminal: %w", err)
		}
	}
	dir := spec.Dir
	if dir == "" {
		dir = "/"
	}
	if !spec.Join {
		if err := os.MkdirAll(dir, 0o755); err != nil && !errors.Is(err, syscall.EROFS) {
			return fmt.Errorf("working directory: %w", err)
		}
	}
	if err := os.Chdir(dir); err != nil {
		return &StartError{Command: true, Message: fmt.Sprintf("working directory: %v", err)}
	}
	return nil
}

// find looks the command up as execvp does, in the container's PATH and root.
func find(spec *Spec) (string, error) {
	if len(spec.Args) == 0 || spec.Args[0] == "" {
		return "", &StartError{Command: true, Message: "no command"}
	}
	name := spec.Args[0]
	if strings.Contains(name, "/") {
		return name, runnable(name)
	}
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, variable := range spec.Env {
		if value, ok := strings.CutPrefix(variable, "PATH="); ok {
			path = value
		}
	}
	for _, dir := range filepath.SplitList(path) {
		program := filepath.Join(dir, name)
		if runnable(program) == nil {
			return program, nil
		}
	}
	return "", &StartError{Command: true, Message: fmt.Sprintf("exec: %q: executable file not found in $PATH", name)}
}

func runnable(program string) error {
	info, err := os.Stat(program)
	if err != nil {
		return &StartError{Command: true, Message: fmt.Sprintf("exec: %q: %v", program, errors.Unwrap(err))}
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return &StartError{Command: true, Message: fmt.Sprintf("exec: %q: %v", program, fs.ErrPermission)}
	}
	return nil
}

// lastCapability bounds the loop over capabilities; the kernel refuses those it does not know.
const lastCapability = 63

// become takes the container's identity, last of all because nothing above could be done with it.
func become(spec *Spec) error {
	for n := uintptr(0); n <= lastCapability; n++ {
		if spec.Capabilities&(1<<n) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, n, 0, 0, 0); err != nil {
			break // EINVAL: beyond the last one this kernel has
		}
	}
	if err := syscall.Setgroups(spec.Groups); err != nil {
		return fmt.Errorf("set groups %v: %w", spec.Groups, err)
	}
	if err := syscall.Setresgid(spec.Group, spec.Group, spec.Group); err != nil {
		return fmt.Errorf("set group %d: %w", spec.Group, err)
	}
	if err := syscall.Setresuid(spec.User, spec.User, spec.User); err != nil {
		return fmt.Errorf("set user %d: %w", spec.User, err)
	}
	if spec.User == 0 {
		// A user other than root lost its capabilities with setresuid and may only regain the capabilities that are left.
		if err := setCapabilities(spec.Capabilities); err != nil {
			return fmt.Errorf("set capabilities %x: %w", spec.Capabilities, err)
		}
	}
	if spec.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
	}
	if spec.DieWithParent {
		// Only now: a change of identity forgets it.
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return fmt.Errorf("set parent-death signal: %w", err)
		}
	}
	return nil
}

func setCapabilities(wanted uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		return err
	}
	for i := range has {
		has[i].Permitted &= uint32(wanted >> (32 * i)) // never more than the machine gave us
		has[i].Effective = has[i].Permitted
		has[i].Inheritable = 0
	}
	return unix.Capset(&header, &has[0])
}
