// Command demo shows the product on one machine: a control plane that serves a directory of files, a small bookstore of
// four services, a real Envoy under a pilot-agent beside each of their workloads, a gateway that serves HTTPS, and weights and a
// certificate that are replaced while requests run.
//
// It prints who answers, and how long each edit took from the file until every proxy had acknowledged it. Then it leaves
// everything running to play with; Ctrl-C stops all it started. With -ci it ends by itself and fails if anything did not
// work.
package main

import (
	"context"

	"github.com/pilotmesh/pilot/test/demo/local"
	"github.com/pilotmesh/pilot/test/demo/tour"
	"github.com/pilotmesh/pilot/test/repo"
)

func main() { tour.Main(run) }

func run(ctx context.Context, ci bool, out *tour.Screen) error {
	root, err := repo.Root()
	if err != nil {
		return err
	}
	s := &stage{Stage: local.Stage{Screen: out, Root: root}}
	defer s.Close()
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.Tour.Go(ctx); err != nil {
		return err
	}
	if err := s.rotate(ctx); err != nil {
		return err
	}
	if ci {
		return s.Tour.Verdict(ctx)
	}
	s.next()
	return s.Tour.Watch(ctx)
}
