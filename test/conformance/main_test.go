package conformance

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

// binary is the control plane under test: $PILOT_DISCOVERY, or built by TestMain.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		return 1
	}
	// Most tests wait most of the time, some for a minute: more of them at once than there are processors.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := flag.Set("test.parallel", "12"); err != nil {
			return fail(err)
		}
	}
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if binary = os.Getenv("PILOT_DISCOVERY"); binary == "" {
		root, err := repo.Root()
		if err != nil {
			return fail(err)
		}
		if binary, err = testbed.Build(context.Background(), root, "pilot-discovery", dir); err != nil {
			return fail(err)
		}
	}
	return m.Run()
}
