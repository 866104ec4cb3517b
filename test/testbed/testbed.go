// Package testbed starts the real things that end-to-end tests, the demo and measurements need on one machine: a
// control plane, Envoys, backends that say who they are, and a load that counts failures.
//
// Everything listens on loopback at free ports and stops with the context it was started with or its Stop method.
// Waiting is always for a condition, with a deadline (see Until); what went wrong is in the error, with the end of the
// log of the program that did it. Goroutines belong to the value whose Start made them and end before Stop returns.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"time"
)

// poll is how often Until looks: short compared with the wait, long compared with the cost of a look.
const poll = 2 * time.Millisecond

// Until calls check until it returns nil, and fails with its last error when ctx ends.
func Until(ctx context.Context, what string, check func(context.Context) error) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	begin := time.Now()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", time.Since(begin).Round(time.Millisecond), what, err)
		case <-tick.C:
		}
	}
}

// Ports of FreePorts lie below the ports that Linux assigns itself (ip_local_port_range), to connections and to programs that listen at port 0: a
// port may be handed on to a program that listens there later, or again after a restart.
const firstPort, lastPort = 20000, 32767

// FreePorts returns n TCP ports that no program listens on at loopback, and that no other caller gets, of this process or
// another, until this process ends.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for _, at := range rand.Perm(lastPort - firstPort + 1) {
		if len(ports) == n {
			break
		}
		port := firstPort + at
		if reserve(port) != nil {
			continue // and not looked at, which would be in its owner's way
		}
		if l, err := net.Listen("tcp", Loopback(port)); err == nil {
			l.Close()
			ports = append(ports, port)
		}
	}
	if len(ports) < n {
		return nil, fmt.Errorf("looking for %d free ports from %d to %d: found %d", n, firstPort, lastPort, len(ports))
	}
	return ports, nil
}

// Listen listens at a free port of loopback, one of FreePorts: an Envoy can listen at the same port of another address.
func Listen() (net.Listener, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", Loopback(ports[0]))
	if err != nil {
		return nil, fmt.Errorf("listening at a free port: %w", err)
	}
	return l, nil
}

// reserve takes a name for the port which only one process of a network namespace can have. It is given back by
// the system as the process ends.
func reserve(port int) error {
	s, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := syscall.Bind(s, &syscall.SockaddrUnix{Name: fmt.Sprintf("@pilot-testbed-port-%d", port)}); err != nil {
		return errors.Join(err, syscall.Close(s))
	}
	return nil
}

// Loopback is the address of a port of this machine.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
