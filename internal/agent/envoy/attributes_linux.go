package envoy

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes puts Envoy into its own process group, and makes the kernel kill it when the agent dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// inherited is the path at which Envoy finds the first further file that it inherits.
const inherited = "/dev/fd/3"

// inMemory returns a file in memory, without a name on a disk.
func inMemory(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("bootstrap", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "bootstrap")
	if _, err := file.WriteString(text); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
