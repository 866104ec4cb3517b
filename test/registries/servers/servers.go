// Package servers starts real registries on this machine: Consul, ZooKeeper and Nacos, as scripts/registries.sh gets them.
//
// A Server keeps its port over restarts, and ends with this process. The package starts no goroutines.
package servers

import (
	"cmp"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pilotmesh/pilot/test/kit/process"
	"github.com/pilotmesh/pilot/test/testbed"
)

// patience is how long a server may take to answer.
const patience = time.Minute

// Missing says that a server is not on this machine, and how to get it.
type Missing struct{ What, Remedy string }

// Error implements error.
func (m *Missing) Error() string { return "no " + m.What + ": " + m.Remedy }

// Server is a real server that can be killed and started again.
type Server struct {
	Port    int
	name    string
	log     string
	data    string // folder of what survives a kill; empty for nothing
	command func() *exec.Cmd
	ready   func(context.Context) error
	running *process.Process
	place   Place
}

// Place is where a server runs. The zero value is this machine, on loopback.
type Place struct {
	// Host is the address at which it listens.
	Host string
	// Enter leads to the place, for instance into a network namespace, and Dial connects to its ports from here.
	Enter func() error
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
}

func newServer(name, dir string) (*Server, error) {
	ports, err := testbed.FreePorts(1)
	if err != nil {
		return nil, err
	}
	return &Server{Port: ports[0], name: name, log: filepath.Join(dir, name+".log")}, nil
}

// Address is host:port of the server.
func (s *Server) Address() string {
	return net.JoinHostPort(cmp.Or(s.place.Host, "127.0.0.1"), strconv.Itoa(s.Port))
}

// dial connects to the server.
func (s *Server) dial(ctx context.Context) (net.Conn, error) {
	if s.place.Dial != nil {
		return s.place.Dial(ctx, "tcp", s.Address())
	}
	return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", s.Address())
}

// PID is the number of its process.
func (s *Server) PID() int { return s.running.PID() }

// Running reports whether the server runs.
func (s *Server) Running() bool { return s.running != nil && s.running.Running() }

// Start starts the server and waits until it answers.
func (s *Server) Start(ctx context.Context) (err error) {
	if s.running, err = process.StartInside(s.name, s.log, s.command(), s.place.Enter); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return testbed.Until(ctx, s.name+" to answer", func(ctx context.Context) error {
		if err := s.running.Alive(); err != nil {
			cancel() // no use waiting
			return err
		}
		return s.ready(ctx)
	})
}

// Kill ends the server as a crash would.
func (s *Server) Kill() {
	if s.running != nil {
		s.running.Kill()
		s.running = nil
	}
}

// Wipe removes what survives a kill. The server must have been killed.
func (s *Server) Wipe() error {
	if s.data == "" {
		return nil
	}
	return os.RemoveAll(s.data)
}
