// Command demo shows the product on a real Kubernetes cluster that it starts on this machine, as a user meets it: pilotctl installs the control plane, a
// namespace gets a label, and an application that knows nothing of the mesh, a bookstore of four services, is deployed there. Its pods get their proxies
// from the webhook. Then mutual TLS is demanded, weights are edited with kubectl while requests run, and the control plane is upgraded.
//
// It prints who answers, how long each edit took from the API server until every proxy had acknowledged it, and how many requests failed. Then it
// leaves everything running to play with; Ctrl-C removes all of it. With -ci it removes the installation, looks whether anything is left, ends by itself
// and fails if anything did not work.
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
	for _, part := range []func(context.Context) error{s.tour.Go, s.secure, s.upgrade} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if ci {
		if err := s.tour.Verdict(ctx); err != nil {
			return err
		}
		return s.remove(ctx)
	}
	if err := s.next(ctx); err != nil {
		return err
	}
	return s.tour.Watch(ctx)
}
