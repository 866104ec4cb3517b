package console

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// unreachable is a kubeconfig of an API server that does not run.
const unreachable = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: c}}]
users: [{name: c, user: {}}]
current-context: c
`

// TestTunnel: a tunnel is tried only if no address is given, nothing else is asked, and there is a kubeconfig; if it fails, the command keeps its address.
func TestTunnel(t *testing.T) {
	if answers(t.Context()) {
		t.Skip("something listens at " + defaultAddress)
	}
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(unreachable), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, kubeconfig string
		tried            bool
	}{
		{"", file, true},
		{"--kubeconfig=" + file, "/does/not/exist", true},
		{"", "/does/not/exist", false},
		{"--address=http://10.0.0.7:8080", file, false},
		{"--admin=http://127.0.0.1:15000", file, false},
		{"--file=dump.json", file, false},
	} {
		t.Setenv("KUBECONFIG", c.kubeconfig)
		var log bytes.Buffer
		cmd := &cobra.Command{Use: "x", RunE: func(cmd *cobra.Command, _ []string) error { Tunnel(cmd); return nil }}
		cmd.SetErr(&log)
		address := Address(cmd)
		for _, flag := range []string{"admin", "file", "kubeconfig"} {
			cmd.Flags().String(flag, "", "")
		}
		cmd.SetArgs(strings.Fields(c.args))
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if tried := strings.Contains(log.String(), "no control plane is reached"); tried != c.tried {
			t.Errorf("%q with %s: %q, tried %t", c.args, c.kubeconfig, &log, tried)
		}
		if want := strings.Contains(c.args, "--address"); *address != defaultAddress != want {
			t.Errorf("%q: the address is %s", c.args, *address)
		}
	}
}
