package capture

import (
	"bytes"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/pflag"

	"github.com/pilotmesh/pilot/internal/agent/capture/settings"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGoldens compares the input of the back ends with golden files. Each file has the command line and the environment at the top,
// and an archive of the output of a dry run for iptables and for nftables. Both variants of iptables get the same input.
func TestGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := txtar.Archive{Comment: archive.Comment, Files: []txtar.File{
				{Name: "iptables", Data: dryRun(t, string(archive.Comment))},
				{Name: "nftables", Data: dryRun(t, string(archive.Comment), "--native-nftables")},
			}}
			if *update {
				if err := os.WriteFile(file, txtar.Format(&got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(txtar.Format(archive)), string(txtar.Format(&got))); diff != "" {
				t.Errorf("%s (- want, + got; make update rewrites it):\n%s", file, diff)
			}
		})
	}
}

// dryRun returns the output of a dry run. Lines of the text that begin with # are comments; words with = before the first flag are
// variables; a line "addresses" lists the addresses of the host, and a line "resolv" its name servers.
func dryRun(t *testing.T, text string, more ...string) []byte {
	t.Helper()
	host := settings.Host{
		User:  func(string) (uint32, uint32, error) { return 0, 0, errors.New("unknown") },
		Group: func(string) (uint32, error) { return 0, errors.New("unknown") },
	}
	var environ, args []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0] == "#":
		case f[0] == "addresses":
			for _, a := range f[1:] {
				host.Addresses = append(host.Addresses, netip.MustParseAddr(a))
			}
		case f[0] == "resolv":
			host.Resolv = func() ([]byte, error) { return []byte("nameserver " + strings.Join(f[1:], "\nnameserver ")), nil }
		case strings.HasPrefix(f[0], "-"):
			args = append(args, f...)
		default:
			environ = append(environ, f...)
		}
	}
	set := pflag.NewFlagSet("capture", pflag.ContinueOnError)
	flags := settings.NewFlags(set)
	if err := errors.Join(set.Parse(append(args, more...)), flags.FromEnvironment(environ)); err != nil {
		t.Fatal(err)
	}
	s, o, err := flags.Resolve(host)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (Capture{Out: &out}).show(s, o); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
