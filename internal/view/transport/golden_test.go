package transport_test

import (
	"flag"
	"os"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden compares the configuration of proxies with the golden files about the rules that this package owns: which
// service owns a connection. See meshtest.Golden for their form.
func TestGolden(t *testing.T) { meshtest.Golden{Update: *update, Envoy: os.Getenv("ENVOY")}.Run(t) }
