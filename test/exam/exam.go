package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/exam/environment"
	"github.com/pilotmesh/pilot/test/exam/observation"
)

// exam runs the cases, judges and prints.
func (o *options) exam(ctx context.Context, w io.Writer) error {
	known, err := readGaps(filepath.Join(o.root, "test", "exam", "gaps.txt"))
	if err != nil {
		return err
	}
	tasks, err := o.tasks()
	if err != nil {
		return err
	}
	if err := o.checkGaps(known); err != nil {
		return err
	}
	if lack := environment.Missing(ctx, o.ID); lack != "" && ctx.Err() == nil {
		fmt.Fprintf(w, "exam: skipped: %s\n", lack)
		return o.writeReport(&result{Skipped: []string{lack}})
	}
	dir, err := os.MkdirTemp("", "pilot-exam-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := o.prepare(ctx, dir); err != nil {
		return err
	}
	start := time.Now()
	sheet, err := o.grade(ctx, w, known, tasks)
	if err != nil {
		return err
	}
	if o.closing {
		if err := known.closed(sheet.close()); err != nil {
			return err
		}
	}
	sheet.print(w)
	fmt.Fprintf(w, "%d cases over %s in %v\n", len(tasks), o.variant, time.Since(start).Round(time.Second))
	r := sheet.result()
	if err := o.writeReport(r); err != nil {
		return err
	}
	fmt.Fprintf(w, "exam: %d passed, %d failed, %d known gaps\n", r.Passed, r.Failed, len(r.Skipped))
	if r.Failed > 0 {
		return errors.New("cases fail; for one of them: make exam ARGS='-run NAME -v -keep /tmp/exam', then see test/exam/README.md")
	}
	return nil
}

// checkGaps holds the list of gaps against all cases there are, whatever is selected.
func (o *options) checkGaps(known gaps) error {
	all, err := casefile.Find([]string{filepath.Join(o.root, "test", "exam", "cases")})
	if err != nil {
		return err
	}
	var names []string
	for _, path := range all {
		names = append(names, (&casefile.Case{Path: path}).Name())
	}
	return known.unknown(names)
}

// grade runs all tasks, and once more, alone, the tasks that failed and should not have: a machine that is busy with other things can spoil results
// that depend on time. A rejection by Envoy is no such result.
func (o *options) grade(ctx context.Context, w io.Writer, known gaps, tasks []environment.Task) (*sheet, error) {
	sheet := &sheet{}
	finish := func(t environment.Task, obs *observation.Observation, took time.Duration) grade {
		g := o.judge(known, t, obs)
		if o.verbose {
			fmt.Fprintf(w, "%-6s %-5s %-50s %5.2fs %s\n", g.mark(), g.Variant, g.Case, took.Seconds(), g.note())
			fmt.Fprintf(w, "    %s\n%s", obs.Phases, indent(obs.Details))
			for _, more := range g.More {
				fmt.Fprintf(w, "    differs too: %s\n", more)
			}
			for _, r := range obs.Requests {
				fmt.Fprintf(w, "    %-28s %s\n", r.Name, r)
			}
		}
		return g
	}
	fmt.Fprintf(w, "exam: %d cases, %d side by side, Envoy %s\n", len(tasks), o.Jobs, o.Envoy)
	var again []environment.Task
	err := environment.Run(ctx, &o.Settings, tasks, func(t environment.Task, obs *observation.Observation, took time.Duration) {
		g := finish(t, obs, took)
		if g.failed() && !g.Pass && g.Rejected == 0 && !o.want {
			again = append(again, t)
		}
		sheet.grades = append(sheet.grades, g)
		if n := len(sheet.grades); !o.verbose && (n%25 == 0 || n == len(tasks)) {
			fmt.Fprintf(w, "exam: %3d of %d: %s\n", n, len(tasks), sheet.progress())
		}
	})
	if err != nil || len(again) == 0 || len(again) > maxAgain {
		return sheet, err
	}
	fmt.Fprintf(w, "exam: once more, alone: %d\n", len(again))
	alone := o.Settings
	alone.Jobs = 1
	err = environment.Run(ctx, &alone, again, func(t environment.Task, obs *observation.Observation, took time.Duration) {
		g := finish(t, obs, took)
		g.Again = true
		i := slices.IndexFunc(sheet.grades, func(first grade) bool { return first.Case == g.Case && first.Variant == g.Variant })
		if !g.failed() {
			g.First = sheet.grades[i].note()
		}
		sheet.grades[i] = g
	})
	return sheet, err
}

// maxAgain is how many cases may fail for the machine's sake: when more do, something is broken.
const maxAgain = 30

func indent(text string) string {
	if text == "" {
		return ""
	}
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
}

// judge compares an observation with the stored answer, or makes it the answer.
func (o *options) judge(known gaps, t environment.Task, obs *observation.Observation) grade {
	g := grade{Case: t.Case.Name(), Variant: t.Variant(), Area: t.Case.Area(), Tags: t.Case.Tags}
	g.Verdict = o.compare(t, obs)
	if l := known.unjudged(g.Area, g.Variant); l != nil {
		g.Unjudged = true
	} else if l := known.find(g.Case, g.Variant); l != nil {
		g.Gap, g.list = l.reason, fmt.Sprintf("%s:%d", known.path, l.line)
	}
	return g
}

func (o *options) compare(t environment.Task, obs *observation.Observation) observation.Verdict {
	if o.Keep != "" {
		path := filepath.Join(o.Keep, t.Variant(), t.Case.Area(), t.Case.Base(), "got.json")
		if err := obs.Write(path); err != nil {
			return observation.Verdict{Why: err.Error()}
		}
	}
	if t.Case.Answered() {
		return observation.Compare(t.Case, observation.Wanted(t.Case), obs)
	}
	if o.want && obs.Failed == "" {
		if err := obs.Write(t.Case.WantPath()); err != nil {
			return observation.Verdict{Why: err.Error()}
		}
	}
	want, err := observation.Read(t.Case.WantPath())
	if err != nil {
		return observation.Verdict{Why: "no stored answer: " + err.Error(), Requests: len(t.Case.Requests)}
	}
	return observation.Compare(t.Case, want, obs)
}

// result is what the report holds: the counts of the judged areas, and every grade.
type result struct {
	Passed  int      `json:"passed"`
	Failed  int      `json:"failed"`
	Skipped []string `json:"skipped"` // the cases not judged, and why
	Cases   []grade  `json:"cases"`
}

func (o *options) writeReport(r *result) error {
	if o.report == "" {
		return nil
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.report, append(b, '\n'), 0o644)
}
