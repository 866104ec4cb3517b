package syntax_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
	"github.com/pilotmesh/pilot/internal/meshtest"
)

// TestLaterOperators: each operator that only newer Envoys know is listed once, and among all operators.
func TestLaterOperators(t *testing.T) {
	plain, argument := syntax.Operators()
	var later []string
	for minor, names := range syntax.LaterOperators() {
		later = append(later, names...)
		for _, name := range names {
			if !slices.Contains(plain, name) {
				t.Errorf("%s is not listed as an operator", name)
			}
			if got, by := syntax.EnvoyFor("%" + name + "%"); got != minor || by != name {
				t.Errorf("%s needs Envoy 1.%d because of %q, want 1.%d", name, got, by, minor)
			}
		}
	}
	for _, names := range [][]string{plain, argument, later} {
		slices.Sort(names)
		if once := slices.Compact(slices.Clone(names)); len(once) != len(names) {
			t.Errorf("an operator is listed twice in %q", names)
		}
	}
}

// TestOperatorsOfEnvoy asks a real Envoy of any supported version: it accepts each operator that its version is said to know,
// and refuses operators of newer versions, and operators of no version.
func TestOperatorsOfEnvoy(t *testing.T) {
	path, err := meshtest.FindEnvoy(os.Getenv("ENVOY"))
	if err != nil {
		t.Skip(err)
	}
	minor := minorOf(t, path)
	plain, argument := syntax.Operators()
	known, unknown := make([]string, 0, len(plain)+len(argument)), []string{"%NO_SUCH%"}
	for _, name := range plain {
		format := "%" + name + "%"
		if needs, _ := syntax.EnvoyFor(format); needs > minor {
			unknown = append(unknown, format)
			continue
		}
		known = append(known, format)
	}
	for _, name := range argument {
		known = append(known, "%"+name+"("+exampleArgument(name)+")%")
	}
	if err := validate(t, path, known); err != nil {
		t.Errorf("Envoy 1.%d refuses an operator that it should know: %v", minor, err)
	}
	for _, format := range unknown {
		var refusal *exec.ExitError
		if err := validate(t, path, []string{format}); !errors.As(err, &refusal) {
			t.Errorf("Envoy 1.%d does not refuse %s: %v", minor, format, err)
		}
	}
}

// exampleArgument is a valid argument of an operator that needs one.
func exampleArgument(name string) string {
	switch name {
	case "CEL":
		return "request.path"
	case "COALESCE":
		return `{"operators": ["PROTOCOL", {"command": "REQ", "param": "x"}]}`
	case "COMMON_DURATION":
		return "DS_RX_BEG:US_TX_BEG"
	case "METADATA":
		return "ROUTE:a:b"
	case "CLUSTER_METADATA", "DYNAMIC_METADATA", "UPSTREAM_METADATA":
		return "a:b"
	}
	return "x"
}

// minorOf is the minor of an Envoy 1.
func minorOf(t *testing.T, path string) uint32 {
	t.Helper()
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`/1\.(\d+)\.`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("%q has no version", out)
	}
	n, err := strconv.ParseUint(string(m[1]), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

// validate lets an Envoy check a listener with an access log for each format.
func validate(t *testing.T, path string, formats []string) error {
	t.Helper()
	var logs strings.Builder
	for _, format := range formats {
		fmt.Fprintf(&logs, `
    - name: log
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
        path: /dev/null
        log_format: {text_format_source: {inline_string: %q}}`, format)
	}
	text := `
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: 20000}}
    filter_chains: [{filters: [{name: tcp, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: a, cluster: a}}]}]
    access_log:` + logs.String() + "\n"
	return meshtest.ValidateBootstrap(path, filepath.Join(t.TempDir(), "bootstrap.yaml"), []byte(text))
}
