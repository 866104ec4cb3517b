package class_test

import (
	"os"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
)

// TestGolden compares what proxies are sent with the golden files about the assembly of class states: which layers there are,
// and which of them wins. See meshtest.Golden for their form. Golden files about the rules of one package lie in its testdata.
func TestGolden(t *testing.T) { meshtest.Golden{Update: *update, Envoy: os.Getenv("ENVOY")}.Run(t) }
