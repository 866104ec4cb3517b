package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

const (
	routes    = "routes.yaml"
	customers = 4 // how many ask at a time
)

// patience is how long an edit may take on the slowest of machines.
const patience = 20 * time.Second

// split is the weights of the versions, in percent.
type split [3]int

func (x split) String() string { return fmt.Sprintf("%d/%d/%d", x[0], x[1], x[2]) }

// tour edits the weights step by step while requests run, and prints a row for each.
func (s *stage) tour(ctx context.Context) error {
	s.header()
	if err := s.observe(ctx, split{100}, ""); err != nil {
		return err
	}
	for _, x := range []split{{90, 10}, {50, 50}, {0, 50, 50}, {0, 0, 100}, {34, 33, 33}} {
		settled, err := s.change(ctx, x)
		if err != nil {
			return err
		}
		if err := s.observe(ctx, x, acknowledged(settled)); err != nil {
			return err
		}
	}
	return nil
}

// change edits the weights and waits until they are in force.
func (s *stage) change(ctx context.Context, x split) (testbed.Settled, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	at, err := s.reweigh(x)
	if err != nil {
		return testbed.Settled{}, err
	}
	return s.discovery.AwaitSettled(ctx, at)
}

func acknowledged(x testbed.Settled) string {
	return fmt.Sprintf("%.1f ms, by %d of %d proxies", float64(x.Took.Microseconds())/1000, x.Told, x.Proxies)
}

var weightLine = regexp.MustCompile(`(?m)^(\s*weight:) \d+$`)

// reweigh writes the routes with other weights, as an editor would.
func (s *stage) reweigh(x split) (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(s.discovery.ConfigDir, routes))
	if err != nil {
		return time.Time{}, err
	}
	i := 0
	edited := weightLine.ReplaceAllStringFunc(string(text), func(line string) string {
		line = weightLine.ReplaceAllString(line, fmt.Sprintf("$1 %d", x[i%len(x)]))
		i++
		return line
	})
	return s.discovery.Write(routes, edited)
}

// observe counts answers for a while, shows them as they come, and compares them with the weights.
func (s *stage) observe(ctx context.Context, x split, took string) error {
	s.count(s.load.Take()) // what was answered before the edit was acknowledged belongs to no row
	all := testbed.Tally{Answers: map[string]int{}}
	for range 10 {
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		add(&all, s.load.Take())
		s.live(s.row(x.String(), all, took))
	}
	s.count(all)
	s.line(s.row(x.String(), all, took))
	for i, v := range versions() {
		if !within(all.Answers[v], all.Total()-all.Failures, x[i]) {
			return fmt.Errorf("the weights are %s, but of %d answers %s gave %d", x, all.Total(), v, all.Answers[v])
		}
	}
	return nil
}

// within reports whether n of all fit a share in percent: within five standard deviations of what chance allows, and the
// requests that were under way when the edit was acknowledged.
func within(n, all, percent int) bool {
	p := float64(percent) / 100
	return all > 0 && math.Abs(float64(n)-p*float64(all)) <= customers+5*math.Sqrt(p*(1-p)*float64(all))
}

func add(sum *testbed.Tally, t testbed.Tally) {
	for who, n := range t.Answers {
		sum.Answers[who] += n
	}
	if sum.Failures += t.Failures; sum.First == nil {
		sum.First = t.First
	}
}

func (s *stage) count(t testbed.Tally) {
	if s.failed += t.Failures; s.first == nil {
		s.first = t.First
	}
}

// verdict ends the bounded run.
func (s *stage) verdict(ctx context.Context) error {
	s.count(s.load.Stop())
	if s.failed > 0 {
		return fmt.Errorf("%d requests failed, the first at %w", s.failed, s.first)
	}
	for _, a := range s.agents {
		if err := a.Rejected(ctx); err != nil {
			return err
		}
	}
	for _, q := range s.questions() {
		cmd := exec.CommandContext(ctx, s.bin("pilotctl"), q.args...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != q.code {
			return fmt.Errorf("pilotctl %s: %w, want exit code %d\n%s", strings.Join(q.args, " "), err, q.code, out)
		}
	}
	if problems, err := s.discovery.Problems(ctx); err != nil || len(problems) > 0 {
		return fmt.Errorf("the sample has problems: %q, %w", problems, err)
	}
	s.line("\n  " + s.in(green, "no request failed, nothing was rejected"))
	return nil
}

// pause waits for a time, or for the user to stop everything.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
