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
	"os"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/cluster/standard"
)

// Shared is the cluster of one test binary.
type Shared struct {
	cluster *cluster.Cluster
	reason  error // why there is none
}

// startTimeout is generous: the machine may be building other packages.
const startTimeout = 4 * time.Minute

// Main starts the cluster, runs the tests, ends the cluster and returns the exit code. What cannot run here is no failure;
// what should run and does not, or leaves something behind, is.
func (s *Shared) Main(m *testing.M, o cluster.Options, more ...standard.Images) int {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	own := standard.Namespace() // now: later, threads of this process enter others
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
		fmt.Fprintf(os.Stderr, "tests failed; the control plane at that time:\n%s", s.cluster.Diagnosis())
	}
	traces := standard.TracesOf(s.cluster, own)
	if err := s.cluster.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "closing the cluster:", err)
		code = max(code, 1)
	}
	settling, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	for _, left := range traces.Left(settling) {
		fmt.Fprintln(os.Stderr, "the cluster left behind:", left)
		code = max(code, 1)
	}
	return code
}

func (s *Shared) start(ctx context.Context, o cluster.Options, more []standard.Images) error {
	var err error
	s.cluster, err = standard.Start(ctx, o, more...)
	return err
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
