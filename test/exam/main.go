// Command exam drives a real Envoy by every case of test/exam/cases, over delta and over State-of-the-World, and compares
// what requests experience with the case's stored answer. README.md says how to use it, FORMAT.md what a case is.
//
// It ends with an error if a case fails that gaps.txt does not list, or one passes that it does. It skips, and says why,
// where it may not make network namespaces. It needs no other process: its child processes end with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/exam/environment"
	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

func main() {
	// Clean up also when what started us is gone: `go run` passes no SIGTERM on. An error leaves us as we were.
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // `make exam | head` still cleans up
	if err := run(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "exam:", err)
		}
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case environment.ChildCommand:
			return environment.ChildMain()
		case "show":
			return show(os.Stdout, args[1:])
		case "lint":
			return lint(os.Stdout, args[1:])
		}
	}
	root, err := repo.Root()
	if err != nil {
		return err
	}
	o, err := parse(args, root)
	if err != nil {
		return err
	}
	return o.exam(ctx, os.Stdout)
}

// options of a run.
type options struct {
	environment.Settings
	root    string
	paths   []string
	match   string
	variant string
	sut     string
	pilot   string
	want    bool
	closing bool
	report  string
	verbose bool
}

const usage = `usage:
  exam [options] [CASES]   run cases and judge them
  exam show [CASES]        print cases with their stored answers
  exam lint [CASES]        check case files
CASES are area/case, areas, files or folders; none means all.
options:
`

func parse(args []string, root string) (*options, error) {
	o := &options{root: root}
	f := flag.NewFlagSet("exam", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprint(f.Output(), usage)
		f.PrintDefaults()
	}
	f.IntVar(&o.ID, "id", 0, "names and ports of this run: `0..60`, so that runs side by side do not meet")
	f.IntVar(&o.Jobs, "j", 3, "cases side by side: `1..8`")
	f.StringVar(&o.match, "run", "", "only cases whose path matches this `regexp`")
	f.StringVar(&o.variant, "variant", both, "`delta|sotw|both`")
	f.BoolVar(&o.verbose, "v", false, "print every request's outcome and how long each phase took")
	f.StringVar(&o.Keep, "keep", "", "leave inputs, logs, observations and Envoy's dumps of each case in this `folder`")
	f.StringVar(&o.pilot, "pilot", "", "`path` of a pilot-discovery, instead of building it")
	f.StringVar(&o.sut, "sut", "", "`script` that starts another control plane (see FORMAT.md)")
	f.BoolVar(&o.want, "want", false, "store what happens as the cases' answers: with the control plane that is right")
	f.BoolVar(&o.closing, "close", false, "remove from gaps.txt what passes now")
	f.StringVar(&o.report, "report", "", "write the result to this `file`, as JSON")
	f.StringVar(&o.EnvoyLog, "envoy-log", "warn", "Envoy's log `level`")
	f.DurationVar(&o.Quiet, "quiet", 250*time.Millisecond, "how long xDS must be unchanged before requests start")
	f.DurationVar(&o.Settle, "settle", 5*time.Second, "how long an Envoy without some of its configuration may see nothing new")
	f.DurationVar(&o.Ready, "ready", time.Minute, "longest wait for the control plane")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	o.paths = locate(root, f.Args())
	switch {
	case o.ID < 0 || o.ID > environment.MaxID:
		return nil, fmt.Errorf("-id is 0 to %d", environment.MaxID)
	case o.Jobs < 1 || o.Jobs > environment.MaxJobs:
		return nil, fmt.Errorf("-j is 1 to %d", environment.MaxJobs)
	case o.variant != "delta" && o.variant != "sotw" && o.variant != both:
		return nil, fmt.Errorf("-variant is delta, sotw or %s", both)
	case o.want && o.variant == both:
		return nil, errors.New("-want stores one answer: choose -variant delta or sotw")
	}
	for _, p := range []*string{&o.sut, &o.pilot, &o.Keep} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return nil, err
		}
		*p = abs
	}
	for _, program := range []string{o.sut, o.pilot} {
		if _, err := os.Stat(program); program != "" && err != nil {
			return nil, err
		}
	}
	return o, nil
}

// both selects both variants of xDS.
const both = "both"

// prepare finds Envoy and the control plane; the programs it builds go into dir.
func (o *options) prepare(ctx context.Context, dir string) error {
	var err error
	if o.Envoy, _, err = envoy.Find(ctx, o.root); err != nil {
		return err
	}
	if o.sut != "" {
		o.Plane = environment.Script(o.sut)
		return nil
	}
	if o.pilot == "" {
		if o.pilot, err = testbed.Build(ctx, o.root, "pilot-discovery", dir); err != nil {
			return err
		}
	}
	o.Plane = environment.Pilot(o.pilot)
	return nil
}

// tasks loads the cases and pairs them with the variants.
func (o *options) tasks() ([]environment.Task, error) {
	cases, err := casefile.Select(o.paths, o.match)
	if err != nil {
		return nil, err
	}
	var tasks []environment.Task
	for _, sotw := range []bool{false, true} {
		for _, c := range cases {
			if t := (environment.Task{Case: c, SOTW: sotw}); o.variant == both || o.variant == t.Variant() {
				tasks = append(tasks, t)
			}
		}
	}
	return tasks, nil
}
