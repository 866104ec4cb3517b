//go:build !linux

package envoy

import "syscall"

// attributes put Envoy into a process group of its own. Only Linux can make it die with the agent.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
