package problem_test

import (
	"flag"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden compares the problems of objects with the golden files. Each file has one kind of objects that have a problem, and
// beside each of them one that does not. See meshtest.Golden for the form.
func TestGolden(t *testing.T) { meshtest.Golden{Update: *update}.Run(t) }
