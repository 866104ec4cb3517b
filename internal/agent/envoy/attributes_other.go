//go:build !linux

package envoy

import (
	"errors"
	"os"
	"syscall"
)

// attributes puts Envoy into its own process group. Only on Linux does the kernel kill it when the agent dies.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// inherited is the path at which Envoy finds the first further file that it inherits.
const inherited = "/dev/fd/3"

// inMemory would return a file that is on no disk.
func inMemory(string) (*os.File, error) { return nil, errors.ErrUnsupported }
