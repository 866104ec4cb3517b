package envoy

import "syscall"

// attributes puts Envoy into its own process group, and makes the kernel kill it when the agent dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
