package main

import (
	"flag"
	"os"
	"testing"

	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/run/reference"
)

var (
	update = flag.Bool("update", false, "rewrite the reference of the commands")
	man    = flag.String("man", "", "write man pages into this folder, too")
)

// TestReference: the committed reference matches the help of the commands.
func TestReference(t *testing.T) {
	for _, name := range []string{"POD_NAMESPACE", "INSTANCE_IP", "ENVOY_STATUS_PORT", "ENVOY_PROMETHEUS_PORT"} {
		t.Setenv(name, "") // the defaults of flags
	}
	reference.Check(t, root(config.New(os.Environ())), "../../doc/reference/pilot-agent.md", *update, *man)
}

// TestIstioSettings: the page about settings of Istio's agent matches the program.
func TestIstioSettings(t *testing.T) {
	const page = "../../doc/reference/istio-agent.md"
	want := config.IstioSettings()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("%s is not what the program does; run `make docs`: %v", page, err)
	}
}
