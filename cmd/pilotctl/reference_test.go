package main

import (
	"flag"
	"testing"

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
	reference.Check(t, root(), "../../doc/reference/pilotctl.md", *update, *man)
}
