// Command registries shows services outside Kubernetes: a bookstore whose services live in a real Consul, in a real ZooKeeper, in files and in a
// memory registry, with a real Envoy under pilot-agent beside each workload that calls others.
//
// While customers ask, an instance registers in Consul, another one dies in ZooKeeper, Consul is killed and comes back without its data, and a
// service moves from one registry to another by weights. The program prints what became of each. Then it leaves everything running to play
// with; Ctrl-C stops all it started. With -ci it ends by itself and fails if a request failed or anything else did not work.
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
	defer s.close()
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.acts(ctx); err != nil {
		return err
	}
	if err := s.Tour.Go(ctx); err != nil {
		return err
	}
	if ci {
		return s.Tour.Verdict(ctx)
	}
	s.next()
	return s.Tour.Watch(ctx)
}
