package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/pilotmesh/pilot/test/podrunner"
	"github.com/pilotmesh/pilot/test/testbed"
)

// The image names of the sample program, test/workload, and of the demo's services, samples/bookstore/app, under any tag.
const (
	WorkloadImage  = "pilot.test/workload"
	BookstoreImage = "pilot.test/bookstore"
)

// Programs are what pods of this cluster run that is not the machine's.
type Programs struct {
	Workload  string // the sample program
	Bookstore string // the demo's services
	Stage     string // podrunner's, which turns a new process into a container
}

// BuildPrograms builds them into bin below root. They need no library of the root they run in.
func BuildPrograms(ctx context.Context, root string) (Programs, error) {
	bin := func(name string) string { return filepath.Join(root, "bin", name) }
	p := Programs{Workload: bin("workload"), Bookstore: bin("bookstore"), Stage: bin("podrunner-init")}
	for _, b := range []struct{ out, module, source string }{
		{p.Workload, "test", "./workload"}, {p.Bookstore, "", "./samples/bookstore/app"}, {p.Stage, "test/podrunner", "./cmd/podrunner-init"},
	} {
		if err := BuildProgram(ctx, b.out, filepath.Join(root, b.module), b.source, "CGO_ENABLED=0"); err != nil {
			return Programs{}, err
		}
	}
	return p, nil
}

// BuildProgram builds a package of the Go module in a directory, with further variables in the environment. Tests of several packages build the same
// programs: the first one writes it, and the others wait and find it up to date, so none writes to a program that runs.
func BuildProgram(ctx context.Context, out, dir, source string, env ...string) (err error) {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("building %s: %w", source, err)
	}
	unlock, err := testbed.Lock(out + ".lock")
	if err != nil {
		return fmt.Errorf("building %s: %w", source, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", out, source)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", source, err, said)
	}
	return nil
}

// Images is the map of image names for tests and people: the samples' programs, kubectl, and a few widely used names, which are
// the machine's own programs.
func (p Programs) Images(kubectl string) (podrunner.Images, error) {
	return podrunner.NewImages(
		podrunner.Image{Prefix: WorkloadImage, Program: p.Workload},
		podrunner.Image{Prefix: BookstoreImage, Program: p.Bookstore},
		podrunner.Image{Prefix: "registry.k8s.io/kubectl", Program: kubectl},
		podrunner.Image{Prefix: "registry.k8s.io/pause", Program: "/bin/sleep", Args: []string{"infinity"}},
		podrunner.Image{Prefix: "busybox", Program: "/bin/sh"},
		podrunner.Image{Prefix: "debian", Program: "/bin/sh"},
	)
}
