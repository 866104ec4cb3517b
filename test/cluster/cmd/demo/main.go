// Command demo shows the product on a real Kubernetes cluster that it starts on this machine: pilot-discovery as a pod that
// reads Services, pods and Istio's resources, a bookstore of four services with a real Envoy under pilot-agent in each of
// their pods, and weights that are edited with kubectl while requests run.
//
// It prints who answers, and how long each edit took from the API server until every proxy had acknowledged it. Then it
// leaves everything running to play with; Ctrl-C removes all of it. With -ci it ends by itself and fails if anything did not
// work.
package main

import (
	"context"
	"errors"

	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/demo/tour"
)

func main() { tour.Main(run) }

func run(ctx context.Context, ci bool, out *tour.Screen) (err error) {
	root, err := binaries.Root()
	if err != nil {
		return err
	}
	s := &stage{Screen: out, root: root}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.tour.Go(ctx); err != nil {
		return err
	}
	if ci {
		return s.tour.Verdict(ctx)
	}
	if err := s.next(ctx); err != nil {
		return err
	}
	return s.tour.Watch(ctx)
}
