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

// imageMap is what the image names of samples and tests stand for. Programs but the workload are the machine's own.
const imageMap = `images:
  - {prefix: "` + WorkloadImage + `", program: %[1]q}
  - {prefix: busybox, program: /bin/sh}
  - {prefix: debian, program: /bin/sh}
  - {prefix: registry.k8s.io/pause, program: /bin/sleep, args: [infinity]}
%[2]s`

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

// Images is the map of image names for tests and people: the workload, a few names everybody uses, and what extra, lines of
// the same YAML list, adds.
func (p Programs) Images(extra string) (podrunner.Images, error) {
	f, err := os.CreateTemp("", "pilot-images-*.yaml")
	if err != nil {
		return podrunner.Images{}, fmt.Errorf("writing the image map: %w", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := fmt.Fprintf(f, imageMap, p.Workload, extra); err != nil {
		return podrunner.Images{}, fmt.Errorf("writing the image map: %w", err)
	}
	return podrunner.ReadImages(f.Name())
}
