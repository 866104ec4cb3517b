//go:build !linux

package envoy

import "syscall"

// attributes puts Envoy into its own process group. Only Linux can kill it when the agent dies.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
