// Command bench measures the cost of the control plane: a table of figures, each beside its bar, beside the value of
// istiod for the same, and beside the last stored run. `make bench` runs all of it.
//
// Server and clients share one process, except where a case says otherwise, and talk gRPC over loopback. The server is the
// product's own loop, queries and streams, fed with batches as a source would hand them over. The clients subscribe, count
// and acknowledge like Envoy, but decode nothing, so that they cost little more than the sockets they read. The judged
// figures are CPU time (user and system, of everything in the process), bytes, counts and retained memory; wall time is
// reported with the same bars and depends on what else the machine does. Nothing fails because something was slow: a figure
// over its bar is a visible MISS, and the exit code says only whether all cases could run.
//
// Its parts: a world of objects (world, changes), a control plane (plane), clients (stream, fleet, script, silent), clients
// in a process of their own (apart, arrivals, residents), the cases (case_*), and the table (figures, report). It is a
// program: nothing imports it. Every goroutine belongs to the plane, fleet or process whose close or end waits for it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/test/repo"
)

// options are the flags.
type options struct {
	run      *regexp.Regexp
	quick    bool
	profiles string
	json     bool
	results  string // where results are stored; empty: nowhere
	conns    int
	fleet    fleetFlags
	sizes    sizes
}

// fleetFlags are the size of the fleets of the cases fleet-…; 0 means what the name of the case says.
type fleetFlags struct{ proxies, services int }

// sizes are how large meshes and fleets are. The names of the cases speak of the standard ones.
type sizes struct {
	tiny, small, large int // services
	streams            int
	fewer              int // streams where each costs much
	churn              time.Duration
	forget             time.Duration // after which the server has dropped state that streams shared
	stall              time.Duration // the server's write timeout; 0: its default
	settle             time.Duration // how long nothing must come before something is measured
	unheard            time.Duration // how long clients wait to hear that the server closed them
	idle               time.Duration // how long a process is watched that has nothing to do
	queries            time.Duration // how long names are asked for
}

func standard() sizes {
	return sizes{tiny: 100, small: 1000, large: 10000, streams: 500, fewer: 200, churn: 30 * time.Second,
		settle: 300 * time.Millisecond, forget: 2500 * time.Millisecond, unheard: 30 * time.Second, idle: 30 * time.Second, queries: 10 * time.Second}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if task := os.Getenv(apartEnv); task != "" {
		report(runApart(ctx, task))
		return
	}
	report(command(ctx, os.Args[1:], os.Stdout))
}

// report ends the program if something went wrong.
func report(err error) {
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, w io.Writer) error {
	o := options{sizes: standard()}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	pattern := flags.String("run", "", "only cases whose name matches this regular expression")
	flags.BoolVar(&o.quick, "quick", false, "few repetitions, a short churn; results are not stored")
	flags.StringVar(&o.profiles, "profile", "", "directory for a CPU and a heap profile of each case")
	flags.BoolVar(&o.json, "json", false, "print JSON instead of the table")
	flags.IntVar(&o.conns, "conns", 50, "TCP connections that the streams share")
	flags.IntVar(&o.fleet.proxies, "fleet-proxies", 0, "proxies of the cases fleet-…, instead of 10,000")
	flags.IntVar(&o.fleet.services, "fleet-services", 0, "services of the cases fleet-…, instead of the usual ones")
	keep := flags.Bool("store", true, "store the results and compare with them next time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	run.PaceCollector(run.Rarely) // as the product does
	var err error
	if o.run, err = regexp.Compile(*pattern); err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	root, err := repo.Root()
	if err != nil {
		return err
	}
	o.results = filepath.Join(root, "test", "bench", "results")
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o755); err != nil {
			return err
		}
	}
	if o.quick {
		o.sizes.churn = 5 * time.Second
	}
	return execute(ctx, o, *keep && !o.quick, w)
}

// execute runs the cases and prints the results.
func execute(ctx context.Context, o options, keep bool, w io.Writer) error {
	before, err := stored(o.results)
	if err != nil {
		return err
	}
	b := newBench(ctx, o)
	defer b.release()
	begin := time.Now()
	failed := b.all()
	last := make(map[string]float64)
	for k, l := range before {
		last[k] = l.median
	}
	list := lines(b.got, last)
	if o.json {
		err = printJSON(w, list)
	} else {
		header(w, begin, o.quick)
		err = table(w, list)
	}
	if err == nil && keep && failed == nil {
		err = store(o.results, begin, b.got, before)
	}
	return errors.Join(failed, err)
}
