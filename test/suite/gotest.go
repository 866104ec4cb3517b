package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// event is one line of `go test -json` (see `go doc test2json`).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Elapsed    float64
	Output     string
}

// goTest runs `go test -json` and reports package by package. Steps before have vetted every module with all analyzers, so it does not vet again with some
// of them, which would type-check every package and its tests once more.
func goTest(ctx context.Context, dir string, w io.Writer, args []string) result {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-vet=off"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, w
	// A program with the race detector sleeps for a second before it ends, in case a goroutine still races. Tests wait for theirs.
	cmd.Env = append([]string{"GORACE=atexit_sleep_ms=0"}, os.Environ()...) // the environment's own value wins
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(w, "FAIL go test: %v\n", err)
		return result{failed: 1}
	}
	r := report(out, w)
	if err := cmd.Wait(); err != nil && r.failed == 0 {
		fmt.Fprintf(w, "FAIL go test: %v\n", err)
		r.failed++
	}
	return r
}

// tally is the state of one package while it runs.
type tally struct {
	output         map[string][]string // by test, "" for the package itself
	passed, failed int
	skipped        []string
}

// report turns events into a line per package, the whole output of what failed, and counts.
func report(in io.Reader, w io.Writer) result {
	var r result
	packages := map[string]*tally{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Action == "" {
			fmt.Fprintln(w, lines.Text()) // not an event: a message of the go command
			continue
		}
		if e.Action == "build-output" {
			fmt.Fprint(w, e.Output)
			continue
		}
		t := packages[e.Package]
		if t == nil {
			t = &tally{output: map[string][]string{}}
			packages[e.Package] = t
		}
		if e.Test == "" {
			t.endPackage(e, w, &r)
		} else {
			t.endTest(e, w)
		}
		if e.Action == "output" && !noise(e) {
			t.output[e.Test] = append(t.output[e.Test], e.Output)
		}
	}
	return r
}

// endTest counts a finished test: top-level tests are counted, failed subtests are shown.
func (t *tally) endTest(e event, w io.Writer) {
	top := !strings.Contains(e.Test, "/")
	switch e.Action {
	case "pass":
		if top {
			t.passed++
		}
	case "skip":
		t.skipped = append(t.skipped, e.Package+" "+e.Test+": "+reason(t.output[e.Test]))
	case "fail":
		if top {
			t.failed++
		}
		fmt.Fprint(w, strings.Join(t.output[e.Test], ""))
	default:
		return
	}
	delete(t.output, e.Test)
}

// endPackage prints the package's line in the form of `go test` and adds its counts.
func (t *tally) endPackage(e event, w io.Writer, r *result) {
	switch e.Action {
	case "fail":
		// The remaining output belongs to tests that never ended: a panic, a timeout, or a package that did not build.
		for _, test := range slices.Sorted(maps.Keys(t.output)) {
			fmt.Fprint(w, strings.Join(t.output[test], ""))
		}
		if t.failed == 0 {
			t.failed = 1
		}
		fmt.Fprintf(w, "FAIL\t%s\t%.2fs\t(%d of %d tests failed)\n", e.Package, e.Elapsed, t.failed, t.failed+t.passed)
	case "pass":
		fmt.Fprintf(w, "ok  \t%s\t%.2fs\t(%d tests)\n", e.Package, e.Elapsed, t.passed)
	case "skip":
		fmt.Fprintf(w, "?   \t%s\t[no tests]\n", e.Package)
	default:
		return
	}
	r.passed += t.passed
	r.failed += t.failed
	r.skipped = append(r.skipped, t.skipped...)
}

// noise is what the go command says about a test's progress, and the package lines that endPackage prints itself.
func noise(e event) bool {
	if e.Test != "" {
		return strings.HasPrefix(e.Output, "=== ")
	}
	return e.Output == "FAIL\n" || e.Output == "PASS\n" || strings.HasPrefix(e.Output, "FAIL\t") || strings.HasPrefix(e.Output, "ok  \t")
}

// reason finds what the test said as it skipped: its last line but the verdict.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "---") {
			return line
		}
	}
	return "no reason given"
}
