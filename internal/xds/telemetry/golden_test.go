package telemetry_test

import (
	"flag"
	"os"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden compares what proxies are sent with the golden files about the rules that this package owns: how listeners log, trace and
// count. See meshtest.Golden for their form.
func TestGolden(t *testing.T) { meshtest.Golden{Update: *update, Envoy: os.Getenv("ENVOY")}.Run(t) }
