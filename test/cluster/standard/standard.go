// Package standard starts clusters that run the repository's programs and the usual images, and finds what a cluster has left behind
// on the machine. It starts no goroutines.
package standard

import (
	"context"
	"log/slog"
	"os"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/podrunner"
)

// Images makes images that pods may name beside the usual ones, for the repository at root.
type Images func(ctx context.Context, root string) (podrunner.Images, error)

// Start starts a cluster with the repository's programs. The caller closes the cluster.
func Start(ctx context.Context, o cluster.Options, more ...Images) (*cluster.Cluster, error) {
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
