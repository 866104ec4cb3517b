// Command demo shows the product on one machine: a control plane that serves a directory of files, a real Envoy, two
// versions of a service, and a weight that is edited while requests run.
//
// It prints who answers, and how long each edit took from the file to the Envoy. Then it leaves everything running to
// play with; Ctrl-C stops all it started. With -ci it ends by itself and fails if anything did not work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/pilotmesh/pilot/test/repo"
)

func main() {
	ci := flag.Bool("ci", false, "end after the tour, and fail if anything did not work")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *ci, os.Stdout); err != nil && (*ci || !errors.Is(err, context.Canceled)) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, ci bool, w io.Writer) error {
	root, err := repo.Root()
	if err != nil {
		return err
	}
	s, err := openStage(ctx, root, w)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.tour(ctx); err != nil {
		return err
	}
	if ci {
		return s.verdict(ctx)
	}
	s.next()
	return s.watch(ctx)
}
