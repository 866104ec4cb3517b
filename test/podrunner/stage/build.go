package stage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Program is the import path of the stage program.
const Program = "github.com/pilotmesh/pilot/test/podrunner/cmd/podrunner-init"

// Build builds the stage program into the directory and returns its path. The working directory must be in a module that
// requires this one.
func Build(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "podrunner-init")
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, Program)
	command.Env = append(os.Environ(), "CGO_ENABLED=0") // it must run in any root
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s (give its path if there is no Go here): %w\n%s", Program, err, output)
	}
	return path, nil
}
