package traffic_test

import (
	"flag"
	"os"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden compares the configuration of proxies with the golden files about the rules that this package owns: how
// rules of several objects are merged, and which timeout a connection pool sets. See meshtest.Golden for their form.
func TestGolden(t *testing.T) { meshtest.Golden{Update: *update, Envoy: os.Getenv("ENVOY")}.Run(t) }
