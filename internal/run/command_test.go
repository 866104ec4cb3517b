package run

import (
	"bytes"
	"errors"
	"testing"

	"github.com/spf13/cobra"
)

func TestCommand(t *testing.T) {
	for _, c := range []struct {
		args []string
		err  error
		code int
		says string
	}{
		{[]string{"do"}, nil, ExitDone, ""},
		{[]string{"do"}, errors.New("it broke"), ExitFailed, "tool: it broke\n"},
		{[]string{"do"}, ErrFailed, ExitFailed, ""},
		{[]string{"do"}, Exit(126, errors.New("it broke")), 126, "tool: it broke\n"},
		{[]string{"do"}, Usage(errors.New("--to: say where")), ExitUsage, "tool: --to: say where\nRun 'tool do --help' for usage.\n"},
		{[]string{"do", "--strange"}, nil, ExitUsage, "tool: unknown flag: --strange\nRun 'tool do --help' for usage.\n"},
		{[]string{"do", "more"}, nil, ExitUsage, "tool: unknown command \"more\" for \"tool do\"\nRun 'tool do --help' for usage.\n"},
		{[]string{"make"}, nil, ExitUsage, "tool: accepts 1 arg(s), received 0; write: tool make NAME\nRun 'tool make --help' for usage.\n"},
		{[]string{"make", "it"}, nil, ExitDone, ""},
		{[]string{"dance"}, nil, ExitUsage, "tool: unknown command \"dance\" for \"tool\"\nRun 'tool --help' for usage.\n"},
	} {
		root := &cobra.Command{Use: "tool"}
		root.AddCommand(&cobra.Command{Use: "make NAME", Args: cobra.ExactArgs(1), RunE: func(*cobra.Command, []string) error { return c.err }})
		root.AddCommand(&cobra.Command{Use: "do", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return c.err }})
		var out bytes.Buffer
		root.SetErr(&out)
		if code := Command(t.Context(), root, c.args); code != c.code || out.String() != c.says {
			t.Errorf("%q with %v: exit %d %q, want %d %q", c.args, c.err, code, out.String(), c.code, c.says)
		}
	}
}

func TestVersion(t *testing.T) {
	build := Build{Version: "v1", Revision: "0123456789abcdef", Modified: true, Go: "go1"}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, ExitDone, "v1 (revision 0123456789ab, modified) go1\n"},
		{[]string{"-o", "json"}, ExitDone, "{\n  \"version\": \"v1\",\n  \"revision\": \"0123456789abcdef\",\n  \"modified\": true,\n  \"golang_version\": \"go1\"\n}\n"},
		{[]string{"-o", "xml"}, ExitUsage, "version: --output: \"xml\" is neither text nor json\nRun 'version --help' for usage.\n"},
	} {
		cmd := Version(build)
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		if code := Command(t.Context(), cmd, c.args); code != c.code || out.String() != c.says {
			t.Errorf("version %q ends with %d and says %q", c.args, code, out.String())
		}
	}
	if ReadBuild().Go == "" {
		t.Error("the build does not know its Go")
	}
}

// TestImageTag: only a release has images, under its version without the v.
func TestImageTag(t *testing.T) {
	for version, tag := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3-rc.1", "devel": "", "v1.2": "", "v1.2.3+dirty": "",
		"v0.0.0-20261126120000-0123456789ab": "", "v1.2.4-0.20261126120000-0123456789ab": "",
	} {
		if got := (Build{Version: version}).ImageTag(); got != tag {
			t.Errorf("%s: the tag is %q, not %q", version, got, tag)
		}
	}
}
