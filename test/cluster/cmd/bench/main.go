// Command bench measures pilot-discovery as a process that reads a real API server: how long it takes from a change of an object
// until every proxy has what follows from it, and what a change, a list and a restart cost the process.
//
// The API server and etcd run on this machine, without nodes; the controllers are stopped while objects are made, so that nothing but
// the bench writes. Proxies are gRPC streams that count and acknowledge all responses; the last case has real Envoys under
// pilot-agent. A figure beyond its bar is a visible MISS; the exit code says only whether all cases could run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// benchCase is one case. It runs in the world that the cases before it have left.
type benchCase struct {
	name, what string
	run        func(ctx context.Context, w *world) error
}

func cases() []benchCase {
	return []benchCase{
		{"endpoint", "a pod becomes ready or goes, 500 streams", endpointCase},
		{"status", "10,000 statuses of pods a minute that change nothing, 500 streams", statusCase},
		{"restart", "pilot-discovery is restarted, 500 streams", restartCase},
		{"rollout", "1,000 pods are replaced within two minutes, 200 streams", rolloutCase},
		{"envoys", "kubectl apply of a VirtualService, 20 Envoys", envoysCase},
		{"list", "10,000 Services, 20,000 endpoints, 20,000 pods", listCase},
	}
}

func command(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	pattern := flags.String("run", "", "only cases whose name matches this regular expression")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: bench [-run REGEXP]\n\nThe cases:")
		for _, c := range cases() {
			fmt.Fprintf(flags.Output(), "  %-10s %s\n", c.name, c.what)
		}
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	match, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	fmt.Printf("# %s; figures are p50, p99 and the worst; a bar is for p99, or for the only value\n", time.Now().Format("2006-01-02 15:04"))
	w, err := newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for _, c := range cases() {
		if !match.MatchString(c.name) {
			continue
		}
		fmt.Printf("# %s: %s\n", c.name, c.what)
		if one := c.run(ctx, w); one != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", c.name, one))
		}
	}
	return err
}
