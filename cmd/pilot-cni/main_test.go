package main

import (
	"flag"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/reference"
)

var (
	update = flag.Bool("update", false, "rewrite the reference of the commands")
	man    = flag.String("man", "", "write man pages into this folder, too")
)

// TestReference: the committed reference matches the help of the commands.
func TestReference(t *testing.T) {
	reference.Check(t, root(nil), "../../doc/reference/pilot-cni.md", *update, *man)
}

// TestCommandLine: mistakes end the command before it does anything, and the message names the flag.
func TestCommandLine(t *testing.T) {
	for line, want := range map[string]string{
		"install":                                           "--node: the name of this node is missing",
		"install --node n --repair later":                   `--repair: "later" is none of repair, delete, label and off`,
		"install --node n --broken-label x":                 `--broken-label: "x" is not KEY=VALUE`,
		"install --node n --daemonset d":                    "--daemonset needs --namespace",
		"install --node n --log_output_level loud":          "loud",
		"install --node n --daemonset d --namespace x rest": "unknown command",
	} {
		var said strings.Builder
		c := root(nil)
		c.SetErr(&said)
		if code := run.Command(t.Context(), c, strings.Fields(line)); code != run.ExitUsage || !strings.Contains(said.String(), want) {
			t.Errorf("%s: exit code %d, %q, want %q", line, code, said.String(), want)
		}
	}
}
