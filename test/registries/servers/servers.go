// Package servers starts real registries on this machine: Consul and ZooKeeper, as scripts/registries.sh gets them.
//
// A Server keeps its port over restarts, and ends with this process. The package starts no goroutines.
package servers

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
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
}

func newServer(name, dir string) (*Server, error) {
	ports, err := testbed.FreePorts(1)
	if err != nil {
		return nil, err
	}
	return &Server{Port: ports[0], name: name, log: filepath.Join(dir, name+".log")}, nil
}

// Address is host:port of the server.
func (s *Server) Address() string { return testbed.Loopback(s.Port) }

// PID is the number of its process.
func (s *Server) PID() int { return s.running.PID() }

// Running reports whether the server runs.
func (s *Server) Running() bool { return s.running != nil && s.running.Running() }

// Start starts the server and waits until it answers.
func (s *Server) Start(ctx context.Context) (err error) {
	if s.running, err = process.StartLogged(s.name, s.log, s.command()); err != nil {
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
