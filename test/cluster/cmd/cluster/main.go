// Command cluster starts a Kubernetes on this machine, prints how to reach it, and stays until it is interrupted; then
// it removes everything it made. `make cluster` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/podrunner"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, stop, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	nodes   int
	images  string
	keep    bool
	verbose bool
}

func run(ctx context.Context, stop func(), args []string, w io.Writer) error {
	var s settings
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.IntVar(&s.nodes, "nodes", 2, "number of nodes; 0 is a control plane alone, for which no root is needed")
	flags.StringVar(&s.images, "images", "", "an image map, whose entries are added (test/podrunner/README.md shows its form)")
	flags.BoolVar(&s.keep, "keep", false, "leave the logs of the control plane behind")
	flags.BoolVar(&s.verbose, "v", false, "print what nodes and network log")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading flags: %w", err)
	}
	o, err := s.options(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "cluster: starting a control plane and %d nodes\n", s.nodes)
	begin := time.Now()
	c, err := cluster.Start(ctx, o)
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted before it was ready; what it had made is removed")
	case err != nil:
		return err
	}
	printAccess(w, c, s.nodes, time.Since(begin))
	<-ctx.Done()
	stop() // a second interrupt ends this process at once, and the reaper cleans up
	fmt.Fprintln(w, "\ncluster: removing everything it made")
	return c.Close()
}

func (s settings) options(ctx context.Context) (cluster.Options, error) {
	o := cluster.Options{Nodes: s.nodes, Keep: s.keep}
	root, err := binaries.Root()
	if err != nil {
		return o, err
	}
	if o.Binaries, err = binaries.Find(root, os.Getenv("KUBE_BINARIES")); err != nil {
		return o, err
	}
	level := slog.LevelWarn
	if s.verbose {
		level = slog.LevelDebug
	}
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if s.nodes == 0 {
		return o, nil
	}
	programs, err := cluster.BuildPrograms(ctx, root)
	if err != nil {
		return o, err
	}
	o.Stage = programs.Stage
	if o.Images, err = programs.Images(o.Binaries.Kubectl); err != nil || s.images == "" {
		return o, err
	}
	more, err := podrunner.ReadImages(s.images)
	o.Images = o.Images.With(more)
	return o, err
}

// printAccess prints how to reach the cluster.
func printAccess(w io.Writer, c *cluster.Cluster, nodes int, took time.Duration) {
	fmt.Fprintf(w, "cluster: ready after %s; logs are in %s\n\n", took.Round(time.Second/10), c.Dir())
	fmt.Fprintf(w, "  export KUBECONFIG=%s\n", c.Kubeconfig())
	if os.Getenv("HTTPS_PROXY") != "" || os.Getenv("https_proxy") != "" {
		host, _, _ := strings.Cut(strings.TrimPrefix(c.Config().Host, "https://"), ":")
		fmt.Fprintf(w, "  export NO_PROXY=$NO_PROXY,%s\n", host)
	}
	fmt.Fprintf(w, "  alias kubectl=%s\n\n", c.Kubectl())
	if nodes > 0 {
		fmt.Fprint(w, "Services, pods and LoadBalancer addresses can be reached from this machine. To see some at work:\n\n"+
			"  kubectl apply -f test/cluster/samples/echo.yaml -f test/cluster/samples/bookstore.yaml\n\n")
	}
	fmt.Fprintln(w, "Ctrl-C removes everything.")
}
