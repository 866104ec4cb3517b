package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// result is what became of one step. A step that is no test counts as one.
type result struct {
	name           string
	passed, failed int
	skipped        []string // test and reason
	took           time.Duration
	busy           string // of the machine's processors during the step
}

// step is one part of a suite.
type step struct {
	name, what string
	dir        string // below the repository's root
	run        func(ctx context.Context, dir string, w io.Writer) result
}

// suites are the steps in the order they run: what fails fast comes first.
var suites = map[string][]step{
	"check": {format, vet, vetTests, vetKit, arch, tests("unit", "unit tests, with fewer random histories", "", all, "-short"),
		tests("tools", "tests of the test tools", "test", toolsAndBench, "-short"), tests("kit", "tests of the test kit", "test/kit", packages("./...")),
		commands},
	"test": {format, vet, vetTests, vetKit, vetNodes, vetCluster, vetPackage, vetDubbo, vetQueries, arch,
		tests("unit", "unit tests with the race detector, with fewer random histories", "", all, "-race", "-short", "-timeout=20m"),
		tests("full", "unit tests of random histories and large meshes, in full", "", longer, "-timeout=20m"),
		tests("tools", "tests of the test tools", "test", tools),
		tests("kit", "tests of the test kit", "test/kit", packages("./..."), "-race"),
		commands,
		step{"lint", "golangci-lint over every module, and Vale over the prose", "", lint},
		tests("schema", "verdicts of API servers", "test", packages("./schema")),
		tests("protocol", "conversations with a running control plane, and all benchmarks in small", "test", packages("./bench", "./conformance/..."), "-timeout=20m"),
		tests("e2e", "end to end with real Envoy", "test", endToEnd, "-race", "-timeout=20m"),
		tests("attack", "attacks on a captured workload and its policies, as root", "test", packages("./e2e/attack"), "-timeout=10m"),
		tests("package", "the Debian package on a machine with systemd", "packaging", packages("./..."), "-timeout=10m"),
		tests("capture", "who receives a connection, with each back end of capture", "test", packages("./capture/..."), "-parallel=3"),
		step{"exam", "requests through real Envoy, held against stored answers", "", exam},
		tests("nodes", "pods as processes in namespaces", "test/podrunner", packages("./..."), "-p=1", "-timeout=20m"),
		proofs, demo, demoKube},
	"cluster": {vetCluster, proofs},
}

var (
	format     = step{"format", "gofmt", "", gofmt}
	vet        = command("vet", "go vet", "", "go", "vet", "./...")
	vetTests   = command("vet-test", "go vet, module test", "test", "go", "vet", "./...")
	vetKit     = command("vet-kit", "go vet, module test/kit", "test/kit", "go", "vet", "./...")
	vetNodes   = command("vet-node", "go vet, module test/podrunner", "test/podrunner", "go", "vet", "./...")
	vetDubbo   = command("vet-dubbo", "go vet, module test/dubbo", "test/dubbo", "go", "vet", "./...")
	vetQueries = command("vet-prom", "go vet, module test/prometheus", "test/prometheus", "go", "vet", "./...")
	vetPackage = command("vet-package", "go vet, module packaging", "packaging", "go", "vet", "./...")
	vetCluster = command("vet-kube", "go vet, module test/cluster", "test/cluster", "go", "vet", "./...")
	arch       = tests("arch", "import rules, budgets, banned things", "test", packages("./arch"))
	commands   = tests("docs", "commands of the documentation", "test", packages("./docs"))
	proofs     = step{"cluster", "real Kubernetes, pods and services", "test/cluster", cluster}
	demoKube   = step{"kubedemo", "make demo-cluster CI=1", "", clusterDemo}
	demo       = command("demo", "make demo CI=1", "", "make", "--no-print-directory", "demo", "CI=1")
)

// command is a step that passes if a program does.
func command(name, what, dir string, args ...string) step {
	return step{name, what, dir, func(ctx context.Context, dir string, w io.Writer) result {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, w, w
		if err := cmd.Run(); err != nil {
			fmt.Fprintf(w, "FAIL %s: %v\n", strings.Join(args, " "), err)
			return result{failed: 1}
		}
		fmt.Fprintf(w, "ok   %s\n", strings.Join(args, " "))
		return result{passed: 1}
	}}
}

// gofmt fails on files that are not formatted, and names them.
func gofmt(ctx context.Context, dir string, w io.Writer) result {
	cmd := exec.CommandContext(ctx, "gofmt", "-l", "cmd", "internal", "test", "packaging")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || len(out) > 0 {
		fmt.Fprintf(w, "FAIL gofmt: these are not formatted (run `gofmt -w` on them):\n%s", out)
		return result{failed: 1}
	}
	fmt.Fprintln(w, "ok   gofmt")
	return result{passed: 1}
}

// tests is a step of Go tests in the packages that list returns. Modules below the root test programs, and read files, of the root
// module. Go keeps results although those change, because it compares only files of the tests' own module; so their tests always run.
func tests(name, what, dir string, list func(ctx context.Context, dir string) ([]string, error), flags ...string) step {
	if dir != "" {
		flags = append(flags, "-count=1")
	}
	return step{name, what, dir, func(ctx context.Context, dir string, w io.Writer) result {
		packages, err := list(ctx, dir)
		if err != nil {
			fmt.Fprintf(w, "FAIL %v\n", err)
			return result{failed: 1}
		}
		return goTest(ctx, dir, w, append(flags, packages...))
	}}
}

// packages is a list that is known.
func packages(patterns ...string) func(context.Context, string) ([]string, error) {
	return func(context.Context, string) ([]string, error) { return patterns, nil }
}

// separate matches the packages of the test module that have steps of their own, most because they run the product; all others are quick.
var separate = regexp.MustCompile(`/pilot/test/(arch|e2e|conformance|chaos|schema|capture|docs)(/|$)`)

func toolsAndBench(ctx context.Context, dir string) ([]string, error) {
	return list(ctx, dir, func(p string) bool { return !separate.MatchString(p) })
}

// tools leaves out the benchmarks, which take minutes without -short.
func tools(ctx context.Context, dir string) ([]string, error) {
	return list(ctx, dir, func(p string) bool { return !separate.MatchString(p) && !strings.HasSuffix(p, "/test/bench") })
}

// endToEnd are the packages with real Envoys, except the attacks, which have a step of their own.
func endToEnd(ctx context.Context, dir string) ([]string, error) {
	return list(ctx, dir, func(p string) bool {
		return (strings.Contains(p, "/test/e2e") || strings.HasSuffix(p, "/test/chaos")) && !strings.HasSuffix(p, "/e2e/attack")
	})
}

// longer are the packages whose tests do more without -short: they draw more random histories, or make larger meshes. The race detector, which makes them ten
// times slower, runs the short form.
func longer(ctx context.Context, dir string) ([]string, error) {
	return list(ctx, dir, func(p string) bool {
		files, _ := filepath.Glob(filepath.Join(dir, strings.TrimPrefix(p, module), "*_test.go")) // the pattern is not malformed
		return slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && (bytes.Contains(text, []byte("rapid.Check(")) || bytes.Contains(text, []byte("testing.Short()")))
		})
	})
}

// module is the path of the root module.
const module = "github.com/pilotmesh/pilot/"

func all(ctx context.Context, dir string) ([]string, error) {
	return list(ctx, dir, func(string) bool { return true })
}

// longest matches the packages of each module whose tests take longest, minutes. They are listed first, so that all others run beside them.
var longest = regexp.MustCompile(`/pilot/(internal/xds/class|test/e2e/agent|test/cluster/(installation|kubesource|serving))$`)

// list names the module's packages that have tests.
func list(ctx context.Context, dir string, keep func(string) bool) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	var kept []string
	for p := range strings.FieldsSeq(string(out)) {
		switch {
		case !keep(p):
		case longest.MatchString(p):
			kept = slices.Insert(kept, 0, p)
		default:
			kept = append(kept, p)
		}
	}
	return kept, nil
}

// canRace says, before minutes are spent, whether the race detector can be had: it needs cgo and a C compiler.
func canRace(ctx context.Context, root string) error {
	cmd := exec.CommandContext(ctx, "go", "env", "CC")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go env CC: %w", err)
	}
	cc := strings.Fields(string(out))
	if len(cc) > 0 {
		if _, err := exec.LookPath(cc[0]); err == nil && os.Getenv("CGO_ENABLED") != "0" {
			return nil
		}
	}
	return errors.New("the race detector needs cgo and a C compiler: install gcc (Debian: apt-get install -y gcc libc6-dev) and do not set CGO_ENABLED=0, or run the fast part only with `make check`")
}
