// Command tools builds what a test cluster runs, once: etcd, the Kubernetes control plane, kubectl.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/pilotmesh/pilot/test/cluster/binaries"
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
	root, err := binaries.Root()
	if err != nil {
		return err
	}
	binaries.Install(ctx, os.Stdout)
	return binaries.Build(ctx, root, os.Stdout)
}
