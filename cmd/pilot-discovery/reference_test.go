package main

import (
	"flag"
	"os"
	"testing"

	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/run/reference"
)

var (
	update = flag.Bool("update", false, "rewrite the reference of the commands")
	man    = flag.String("man", "", "write man pages into this folder, too")
)

// TestReference: the committed reference matches the help of the commands.
func TestReference(t *testing.T) {
	t.Setenv("HOME", "$HOME")
	t.Setenv("XDG_STATE_HOME", "")
	reference.Check(t, root(nil), "../../doc/reference/pilot-discovery.md", *update, *man)
}

// TestVariables: the page about environment variables matches the program.
func TestVariables(t *testing.T) {
	const page = "../../doc/reference/istio-discovery.md"
	want := config.IstioVariables()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("%s is not what the program does; run `make docs`: %v", page, err)
	}
}
