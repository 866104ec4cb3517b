package agent

import (
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/pflag"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/agent"
	"github.com/pilotmesh/pilot/internal/agent/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Files of a case that are no files for the agent: its environment and flags, the memory limit of its container in MiB, and what follows
// from them: the remarks, and in what the bootstrap differs from the usual one.
// The usual one itself, and one that follows from a template, differ from nothing.
const (
	environmentPart = "environment"
	flagsPart       = "flags"
	memoryPart      = "memory"
	remarksPart     = "remarks"
	differencePart  = "difference"
)

// TestBootstraps: settings become the bootstraps of testdata/bootstrap, and Envoy takes each of them and has nothing to say about it.
func TestBootstraps(t *testing.T) {
	folder, err := filepath.Abs("testdata/bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.txtar"))
	if err != nil || len(files) < 30 {
		t.Fatalf("%d cases, %v", len(files), err)
	}
	usual := render(t, &txtar.Archive{})
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r := render(t, archive)
			takes(t, r.text)
			base := usual.text
			if r.own || r.text == usual.text && name == "usual" {
				base = ""
			}
			got := map[string]string{remarksPart: r.remarks, differencePart: difference(t, base, r.text)}
			if *update {
				rewrite(t, file, archive, got)
				return
			}
			for part, text := range got {
				if want := content(archive, part); text != want {
					t.Errorf("%s; go test -update rewrites them:\n%s", part, difference(t, want, text))
				}
			}
		})
	}
}

// rendered is what follows from the settings of a case: the bootstrap, and the remarks about the settings. own is true if the bootstrap
// follows from a template.
type rendered struct {
	text, remarks string
	own           bool
}

func render(t *testing.T, a *txtar.Archive) (r rendered) {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	defer t.Chdir(here)
	for _, f := range a.Files {
		if err := os.MkdirAll(filepath.Dir(f.Name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.Name, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	environ := strings.Split(content(a, environmentPart), "\n")
	s := config.New(append([]string{"INSTANCE_IP=10.1.1.1", "POD_NAME=web-1", "POD_NAMESPACE=shop"}, environ...))
	flags := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	s.Flags(flags)
	if err := flags.Parse(append([]string{"--discoveryAddress=istiod:15012"}, strings.Fields(content(a, flagsPart))...)); err != nil {
		t.Fatal(err)
	}
	s.Role = config.Sidecar
	if flags.NArg() > 0 {
		s.Role = flags.Arg(0)
	}
	if err := s.Load(); err != nil {
		t.Fatal(err)
	}
	memory := uint64(math.MaxUint64)
	if limit := strings.TrimSpace(content(a, memoryPart)); limit != "" {
		if memory, err = strconv.ParseUint(limit, 10, 64); err != nil {
			t.Fatal(err)
		}
		memory <<= 20
	}
	c, err := agent.Boot(s, agent.Machine{Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range s.Warnings() {
		r.remarks += w + "\n"
	}
	r.text, r.own = string(b), s.Template != ""
	return r
}

// takes checks that Envoy takes a bootstrap without a remark.
func takes(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bootstrap.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--mode", "validate", "--disable-hot-restart", "-l", "warning", "-c", file}
	if strings.Contains(text, `"envoy.tracers.`) {
		args = append(args, "--skip-deprecated-logs") // as the agent does
	}
	out, err := exec.CommandContext(t.Context(), envoyBinary, args...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "[warning]") || strings.Contains(string(out), "[error]") {
		t.Errorf("%v\n%s", err, out)
	}
}

// notInBootstrap are the fields of ProxyConfig that show in no bootstrap, with what uses them instead.
var notInBootstrap = map[string]string{
	"binaryPath": "which Envoy is started", "concurrency": "Envoy's command line", "drainDuration": "Envoy's command line",
	"fileFlushInterval": "Envoy's command line", "fileFlushMinSizeKb": "Envoy's command line",
	"discoveryAddress": "the agent's connection", "controlPlaneAuthPolicy": "the agent's connection", "terminationDrainDuration": "the agent's end",
	"gatewayTopology": "the control plane", "proxyHeaders": "the control plane",
	"holdApplicationUntilProxyStarts": "the injector", "image": "the injector",
}

// TestEveryField: a case shows what each field of ProxyConfig does, unless something else than the bootstrap uses it.
func TestEveryField(t *testing.T) {
	files, err := filepath.Glob("testdata/bootstrap/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	settings := ""
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if f.Name != remarksPart && f.Name != differencePart {
				settings += string(f.Data)
			}
		}
	}
	fields := (&meshv1alpha1.ProxyConfig{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		name := fields.Get(i).JSONName()
		shown := regexp.MustCompile(`(^|\W)` + name + `\b`).MatchString(settings)
		if other := notInBootstrap[name]; shown == (other != "") {
			t.Errorf("%s: a case sets it: %v; it is not in the bootstrap, because it concerns %q", name, shown, other)
		}
	}
}

func content(a *txtar.Archive, part string) string {
	for _, f := range a.Files {
		if f.Name == part {
			return string(f.Data)
		}
	}
	return ""
}

// difference returns the removed and added lines, with the lines around.
func difference(t *testing.T, from, to string) string {
	t.Helper()
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: difflib.SplitLines(from), B: difflib.SplitLines(to), Context: 4})
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "@@"): // line numbers change with every bootstrap
			kept = append(kept, "...\n")
		case strings.TrimSpace(line) != "":
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

func rewrite(t *testing.T, file string, a *txtar.Archive, parts map[string]string) {
	t.Helper()
	var kept []txtar.File
	for _, f := range a.Files {
		if _, made := parts[f.Name]; !made {
			kept = append(kept, f)
		}
	}
	for _, name := range []string{remarksPart, differencePart} {
		if parts[name] != "" {
			kept = append(kept, txtar.File{Name: name, Data: []byte(parts[name])})
		}
	}
	a.Files = kept
	if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
		t.Fatal(fmt.Errorf("rewriting a case: %w", err))
	}
}
