package envoy

import "syscall"

// attributes put Envoy into a process group of its own, and make it die with the agent.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
