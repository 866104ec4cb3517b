// Package local runs the parts of a demo on this machine: a control plane that serves a copy of a sample, applications, and
// a real Envoy under pilot-agent beside each workload that needs one.
//
// A Stage has most of the methods of a tour.Bookstore. It starts no goroutines that outlive Close.
package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/test/demo/tour"
	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/testbed"
)

// usualHTTP is where pilotctl asks by itself.
const usualHTTP = "127.0.0.1:8080"

// Stage is everything that a demo runs.
type Stage struct {
	*tour.Screen
	Tour         *tour.Tour
	Root, Dir    string // of the repository, and of the files of this run
	Envoy        string
	EnvoyVersion string
	Discovery    *testbed.Discovery
	Agents       []*testbed.Agent
	// Offset is how far the sample's ports are moved.
	Offset int

	lock    net.Listener // holds the ports
	apps    []*testbed.Program
	seen    string    // snapshot of the files
	looked  time.Time // when it was taken
	missing bool      // the control plane
}

// Workload is one running copy of a service.
type Workload struct {
	Service, Version string
	Address          string // where clients find it
	Port             int    // as in the sample
	Calls            string // services, and where the sidecar listens for them
}

// Name is the name of the workload.
func (w Workload) Name() string { return w.Service + "-" + w.Version }

// Prepare finds the programs of the demo and an Envoy, and makes a folder for its files. makes is the target of make that builds the programs.
func (s *Stage) Prepare(ctx context.Context, makes, name string) (err error) {
	for _, name := range []string{"pilot-discovery", "pilot-agent", "pilotctl", "bookstore"} {
		if _, err := os.Stat(s.Bin(name)); err != nil {
			return fmt.Errorf("bin/%s is not built: run `make %s`, which builds it", name, makes)
		}
	}
	if s.Envoy, s.EnvoyVersion, err = envoy.Find(ctx, s.Root); err != nil {
		return err
	}
	s.Dir, err = os.MkdirTemp("", name+"-")
	return err
}

// Bin is the path of a program that make built.
func (s *Stage) Bin(name string) string { return filepath.Join(s.Root, "bin", name) }

// SetUp prepares a control plane that serves xDS over TLS only, with pilotctl beside its files.
func (s *Stage) SetUp() (err error) {
	if s.Discovery, err = testbed.NewDiscovery(s.Bin("pilot-discovery"), s.Dir); err != nil {
		return err
	}
	s.Discovery.TLSOnly()
	if bindable(usualHTTP) == nil {
		s.Discovery.HTTP = usualHTTP
	}
	return os.Symlink(s.Bin("pilotctl"), filepath.Join(s.Dir, "pilotctl"))
}

// Welcome opens the shop for customers. what names the thing that is edited, and shop and catalog are proxies that pilotctl is asked about.
func (s *Stage) Welcome(ctx context.Context, t *tour.Tour) error {
	s.Tour = t
	t.Screen, t.Pilotctl = s.Screen, s.Bin("pilotctl")
	return t.Open(ctx, func() error {
		for _, a := range s.Agents {
			if err := a.Alive(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Flags are what pilotctl needs to find the control plane.
func (s *Stage) Flags() []string {
	if s.Discovery.HTTP == usualHTTP {
		return nil
	}
	return []string{"--address=" + s.Discovery.HTTP}
}

// App starts the application of a workload at an address of this machine, and waits until it answers.
func (s *Stage) App(ctx context.Context, w Workload, address string) (*testbed.Program, error) {
	app, err := testbed.StartProgram(w.Name(), s.Dir, s.Bin("bookstore"), "-role="+w.Service, "-version="+w.Version,
		"-listen="+address, "-calls="+s.Shift(w.Calls))
	if err != nil {
		return nil, err
	}
	s.apps = append(s.apps, app)
	return app, app.AwaitAnswer(ctx, "http://"+address+"/served")
}

// Agent starts an agent with a token of its service account, which gets a certificate for it and calls the control plane over TLS.
func (s *Stage) Agent(ctx context.Context, role, account string, node testbed.Node) (*testbed.Agent, error) {
	args, env, err := s.Discovery.Certified(ctx, s.Bin("pilotctl"), s.Dir, node.Namespace, account)
	if err != nil {
		return nil, err
	}
	node.Discovery = s.Discovery.Secure
	a, err := testbed.StartAgent(testbed.AgentOptions{
		Binary: s.Bin("pilot-agent"), Envoy: s.Envoy, Args: append(args, "--terminationDrainDuration=0s"), Env: env, Role: role,
	}, s.Dir, node)
	if err != nil {
		return nil, err
	}
	s.Agents = append(s.Agents, a)
	return a, nil
}

// Close stops everything that was started, in the order in which requests are answered longest.
func (s *Stage) Close() {
	if s.Tour != nil {
		s.Tour.Stop()
	}
	var ending sync.WaitGroup
	for _, a := range s.Agents {
		ending.Go(func() { a.End(syscall.SIGTERM) })
	}
	ending.Wait()
	for _, app := range s.apps {
		app.Stop()
	}
	if s.Discovery != nil {
		s.Discovery.Stop()
	}
	if s.lock != nil {
		s.lock.Close()
	}
	if s.Dir != "" {
		os.RemoveAll(s.Dir)
	}
}

// Settled implements tour.Bookstore.
func (s *Stage) Settled(ctx context.Context, edited time.Time) (testbed.Settled, error) {
	return s.Discovery.AwaitSettled(ctx, edited)
}

// Changed reports whether files with the given patterns have changed since it was asked last, and a time before that.
func (s *Stage) Changed(patterns ...string) (since time.Time, edited bool) {
	before, was := s.looked, s.seen
	s.looked = time.Now()
	s.seen = snapshot(patterns)
	return before, s.seen != was
}

// snapshot changes with every change of a file.
func snapshot(patterns []string) string {
	var b strings.Builder
	for _, pattern := range patterns {
		files, _ := filepath.Glob(pattern) // the pattern is right
		for _, f := range files {
			if info, err := os.Stat(f); err == nil { // else it is gone, which is a change too
				fmt.Fprintln(&b, f, info.Size(), info.ModTime().UnixNano())
			}
		}
	}
	return b.String()
}

// Problems implements tour.Bookstore.
func (s *Stage) Problems(ctx context.Context) ([]string, error) {
	list, err := s.Discovery.Problems(ctx)
	for i := range list {
		list[i] = strings.ReplaceAll(list[i], s.Dir+"/", "")
	}
	return list, err
}

// Revive starts a control plane that was killed, a few rows after it was missed, so that its absence can be watched.
func (s *Stage) Revive(ctx context.Context) (news []string, err error) {
	if s.Discovery.Alive() == nil {
		return nil, nil
	}
	if !s.missing {
		s.missing = true
		return []string{s.In(tour.Yellow, "the control plane is gone; requests continue")}, nil
	}
	if err := s.Discovery.Start(ctx); err != nil {
		return nil, err
	}
	s.missing = false
	return []string{s.In(tour.Green, fmt.Sprintf("the control plane is back, as process %d", s.Discovery.PID()))}, nil
}

// Rejected implements tour.Bookstore.
func (s *Stage) Rejected(ctx context.Context) error {
	var errs []error
	for _, a := range s.Agents {
		errs = append(errs, a.Rejected(ctx))
	}
	return errors.Join(errs...)
}
