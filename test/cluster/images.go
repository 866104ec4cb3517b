package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/pilotmesh/pilot/test/podrunner"
)

// WorkloadImage is the image name of the sample program, test/workload, under any tag.
const WorkloadImage = "pilot.test/workload"

// Programs are what pods of this cluster run that is not the machine's.
type Programs struct {
	Workload string // the sample program
	Stage    string // podrunner's, which turns a new process into a container
}

// BuildPrograms builds them into bin below root. They need no library of the root they run in.
func BuildPrograms(ctx context.Context, root string) (Programs, error) {
	p := Programs{Workload: filepath.Join(root, "bin", "workload"), Stage: filepath.Join(root, "bin", "podrunner-init")}
	for _, b := range []struct{ out, module, source string }{
		{p.Workload, "test", "./workload"}, {p.Stage, "test/podrunner", "./cmd/podrunner-init"},
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", b.out, b.source)
		cmd.Dir = filepath.Join(root, b.module)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return Programs{}, fmt.Errorf("building %s: %w\n%s", b.source, err, out)
		}
	}
	return p, nil
}

// Images is the map of image names for tests and people: the workload, kubectl, and a few names everybody uses, which are
// the machine's own programs.
func (p Programs) Images(kubectl string) (podrunner.Images, error) {
	return podrunner.NewImages(
		podrunner.Image{Prefix: WorkloadImage, Program: p.Workload},
		podrunner.Image{Prefix: "registry.k8s.io/kubectl", Program: kubectl},
		podrunner.Image{Prefix: "registry.k8s.io/pause", Program: "/bin/sleep", Args: []string{"infinity"}},
		podrunner.Image{Prefix: "busybox", Program: "/bin/sh"},
		podrunner.Image{Prefix: "debian", Program: "/bin/sh"},
	)
}
