// Package testbed starts the real things that end-to-end tests, the demo and measurements need on one machine: a
// control plane, Envoys, backends that say who they are, and a load that counts failures.
//
// Everything listens on loopback at free ports and stops with the context it was started with or its Stop method.
// Waiting is always for a condition, with a deadline (see Until); what went wrong is in the error, with the end of the
// log of the program that did it. Goroutines belong to the value whose Start made them and end before Stop returns.
package testbed

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"
)

// poll is how often Until looks: short beside what is waited for, long beside what a look costs.
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

// FreePorts finds n TCP ports of loopback that nobody listens on.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		// Kept open until all are found, so that none is found twice.
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// Loopback is the address of a port of this machine.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
