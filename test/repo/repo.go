// Package repo knows where the repository lies.
package repo

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Root is the folder of the main module's go.mod, looked for from the working directory upwards.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/pilotmesh/pilot\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside the pilot repository: no go.mod of github.com/pilotmesh/pilot above the working directory")
		}
		dir = parent
	}
}
