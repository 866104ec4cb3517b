// Command suite runs the steps behind `make check` and `make test`, one after the other, and sums them up.
//
// A step that fails does not stop the ones after it, so one run shows all failures. Its last line is the
// sum, and its exit code is 0 only if every step passed and at least one test ran. It starts no goroutines.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/test/repo"
)

// seedOfHistories is the variable with the seed of random histories. A suite draws the same ones each time, so that no change is refused for a fault that it
// did not bring. `go test` draws others each time, and `make soak` thousands of them, to find such faults. See the package pgregory.net/rapid.
const seedOfHistories = "RAPID_SEED"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, w io.Writer) error {
	if len(args) != 1 || suites[args[0]] == nil {
		return errors.New("usage: suite check|test|cluster")
	}
	root, err := repo.Root()
	if err != nil {
		return err
	}
	if args[0] == "test" {
		if err := canRace(ctx, root); err != nil {
			return err
		}
		warnOfSpace(ctx, w)
	}
	if os.Getenv(seedOfHistories) == "" {
		if err := os.Setenv(seedOfHistories, "1"); err != nil {
			return err
		}
	}
	steps := suites[args[0]]
	var results []result
	for i, s := range steps {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted before step %q", s.name)
		}
		fmt.Fprintf(w, "\n=== %d/%d %s: %s\n", i+1, len(steps), s.name, s.what)
		begin, cpu := time.Now(), cpuNow()
		r := s.run(ctx, filepath.Join(root, s.dir), w)
		r.name, r.took, r.busy = s.name, time.Since(begin), cpuNow().busySince(cpu)
		results = append(results, r)
	}
	return summary(w, results)
}

// summary prints the table and the closing line. The column busy is the share of the processors' time in which they worked: a step with little of it
// waits.
func summary(w io.Writer, results []result) error {
	var sum result
	failed := ""
	fmt.Fprintf(w, "\n%-8s %8s %8s %8s %9s %6s\n", "step", "passed", "failed", "skipped", "time", "busy")
	for _, r := range results {
		verdict := ""
		if r.failed > 0 {
			verdict, failed = "  FAIL", failed+" "+r.name
		}
		fmt.Fprintf(w, "%-8s %8d %8d %8d %9s %6s%s\n", r.name, r.passed, r.failed, len(r.skipped), r.took.Round(time.Second/10), r.busy, verdict)
		sum.passed += r.passed
		sum.failed += r.failed
		sum.skipped = append(sum.skipped, r.skipped...)
	}
	for _, s := range sum.skipped {
		fmt.Fprintf(w, "skipped: %s\n", s)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", sum.passed, sum.failed, len(sum.skipped))
	switch {
	case sum.failed > 0:
		return fmt.Errorf("failed:%s (its output stands above, under its === line)", failed)
	case sum.passed == 0:
		return errors.New("no test ran")
	}
	return nil
}
