// Command tools gets what tests, demo and benchmarks need beside Go: a real Envoy. It fetches nothing that exists already.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/repo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	root, err := repo.Root()
	if err != nil {
		return err
	}
	path, version, err := envoy.Find(ctx, root)
	if errors.Is(err, envoy.ErrNotFound) {
		if _, err := envoy.Fetch(ctx, root, os.Stdout); err != nil {
			return err
		}
		path, version, err = envoy.Find(ctx, root)
	}
	if err != nil {
		return err
	}
	fmt.Printf("tools: Envoy %s at %s\n", version, path)
	return nil
}
