package mesh

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/podrunner"
)

// Images builds pilot-discovery and pilot-agent, finds an Envoy, and returns the images that have them. The error wraps
// binaries.ErrNotBuilt if there is no Envoy yet.
func Images(ctx context.Context, root string) (podrunner.Images, error) {
	proxy, _, err := envoy.Find(ctx, root)
	if errors.Is(err, envoy.ErrNotFound) {
		err = errors.Join(binaries.ErrNotBuilt, err)
	}
	if err != nil {
		return podrunner.Images{}, err
	}
	const discovery, agent = "/usr/local/bin/pilot-discovery", "/usr/local/bin/pilot-agent" // in the images
	files := map[string]string{}
	for _, path := range []string{discovery, agent} {
		name := filepath.Base(path)
		files[path] = filepath.Join(root, "bin", name)
		// As `make build` does, for then most of it is built: pods have the machine's libraries.
		if err := cluster.BuildProgram(ctx, files[path], root, "./cmd/"+name); err != nil {
			return podrunner.Images{}, err
		}
	}
	return podrunner.NewImages(
		podrunner.Image{Prefix: "pilot.test/pilot-discovery", Program: discovery, Files: map[string]string{discovery: files[discovery]}},
		podrunner.Image{Prefix: "pilot.test/pilot-agent", Program: agent, Files: map[string]string{agent: files[agent], "/usr/local/bin/envoy": proxy}},
	)
}
