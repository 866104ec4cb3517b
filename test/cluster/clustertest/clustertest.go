// Package clustertest gives the tests of a package one cluster, and looks whether it left anything behind.
//
//	var shared clustertest.Shared
//
//	func TestMain(m *testing.M) { os.Exit(shared.Main(m, cluster.Options{Nodes: 2})) }
//
//	func TestX(t *testing.T) { c := shared.For(t) ... }
//
// Where a cluster cannot run, every test that wants it is skipped with the reason, which is printed once beforehand.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/podrunner"
)

// Shared is the cluster of one test binary.
type Shared struct {
	cluster *cluster.Cluster
	reason  error // why there is none
}

// startTimeout is generous: the machine may be building other packages.
const startTimeout = 4 * time.Minute

// More makes images that pods may name beside the usual ones, for the repository at root.
type More func(ctx context.Context, root string) (podrunner.Images, error)

// Main starts the cluster, runs the tests, ends the cluster and returns the exit code. What cannot run here is no failure;
// what should run and does not, or leaves something behind, is.
func (s *Shared) Main(m *testing.M, o cluster.Options, more ...More) int {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	own := namespace("self") // now: later, threads of this process enter others
	err := s.start(ctx, o, more)
	switch {
	case errors.Is(err, cluster.ErrUnable) || errors.Is(err, binaries.ErrNotBuilt):
		s.reason = err
		fmt.Println("tests that need a cluster are skipped:", err)
		return m.Run()
	case err != nil:
		fmt.Fprintln(os.Stderr, "starting the cluster:", err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		fmt.Fprintf(os.Stderr, "tests failed; the control plane meanwhile:\n%s", s.cluster.Diagnosis())
	}
	traces := look(s.cluster, own)
	if err := s.cluster.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "closing the cluster:", err)
		code = max(code, 1)
	}
	settling, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	for _, left := range traces.settle(settling) {
		fmt.Fprintln(os.Stderr, "the cluster left behind:", left)
		code = max(code, 1)
	}
	return code
}

func (s *Shared) start(ctx context.Context, o cluster.Options, more []More) error {
	var err error
	s.cluster, err = Start(ctx, o, more...)
	return err
}

// Start starts a cluster with the repository's programs. Whoever calls it closes the cluster.
func Start(ctx context.Context, o cluster.Options, more ...More) (*cluster.Cluster, error) {
	root, err := binaries.Root()
	if err != nil {
		return nil, err
	}
	if o.Nodes > 0 {
		if err := cluster.Able(ctx); err != nil {
			return nil, err
		}
	}
	if o.Binaries, err = binaries.Find(root, os.Getenv("KUBE_BINARIES")); err != nil {
		return nil, err
	}
	if o.Nodes > 0 {
		programs, err := cluster.BuildPrograms(ctx, root)
		if err != nil {
			return nil, err
		}
		o.Stage = programs.Stage
		if o.Images, err = programs.Images(o.Binaries.Kubectl); err != nil {
			return nil, err
		}
		for _, images := range more {
			added, err := images(ctx, root)
			if err != nil {
				return nil, err
			}
			o.Images = o.Images.With(added)
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	return cluster.Start(ctx, o)
}

// For returns the cluster, or skips the test if there is none.
func (s *Shared) For(t testing.TB) *cluster.Cluster {
	t.Helper()
	if s.reason != nil {
		t.Skip(s.reason)
	}
	if s.cluster == nil {
		t.Fatal("no cluster: TestMain must call Shared.Main")
	}
	return s.cluster
}
