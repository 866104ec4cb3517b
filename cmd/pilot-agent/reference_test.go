package main

import (
	"flag"
	"testing"

	"github.com/pilotmesh/pilot/internal/reference"
)

var (
	update = flag.Bool("update", false, "rewrite the reference of the commands")
	man    = flag.String("man", "", "write man pages into this folder, too")
)

// TestReference: what is committed is what the commands say.
func TestReference(t *testing.T) {
	for _, name := range []string{"POD_NAMESPACE", "INSTANCE_IP", "ENVOY_STATUS_PORT", "ENVOY_PROMETHEUS_PORT"} {
		t.Setenv(name, "") // the defaults of flags
	}
	reference.Check(t, root(), "../../doc/reference/pilot-agent.md", *update, *man)
}
