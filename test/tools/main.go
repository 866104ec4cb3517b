// Command tools gets what tests, demo and benchmarks need beside Go: a real Envoy. It fetches nothing that exists already. With -for it gets the pinned
// Envoys of platforms, for a release; -version prints their version.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/repo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	platforms := flag.String("for", "", "platforms, OS/ARCHITECTURE, separated by commas: get their Envoys, and not the Envoy of this machine")
	version := flag.Bool("version", false, "print the version of the pinned Envoy")
	flag.Parse()
	if *version {
		fmt.Println(envoy.Version)
		return
	}
	if err := run(ctx, *platforms); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, platforms string) error {
	root, err := repo.Root()
	if err != nil {
		return err
	}
	if platforms != "" {
		return fetchFor(ctx, root, platforms)
	}
	path, version, err := envoy.Find(ctx, root)
	if errors.Is(err, envoy.ErrNotFound) {
		if _, err := envoy.Fetch(ctx, root, os.Stdout); err != nil {
			return err
		}
		path, version, err = envoy.Find(ctx, root)
	}
	if err != nil {
		return err
	}
	fmt.Printf("tools: Envoy %s at %s\n", version, path)
	return nil
}

// fetchFor gets the Envoys of platforms.
func fetchFor(ctx context.Context, root, platforms string) error {
	for p := range strings.SplitSeq(platforms, ",") {
		goos, goarch, _ := strings.Cut(p, "/")
		path, err := envoy.FetchFor(ctx, root, goos, goarch, os.Stdout)
		if err != nil {
			return err
		}
		fmt.Printf("tools: Envoy %s for %s at %s\n", envoy.Version, p, path)
	}
	return nil
}
