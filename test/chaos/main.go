// Command chaos is rough with a running mesh and then asks whether it came through.
//
// Beside a control plane that serves a directory, and Envoys under pilot-agent, it does at random what happens to such a mesh:
// the control plane is killed and started again, Envoys and agents are killed or stand still for a while, files are edited,
// broken, removed, renamed and brought back. After each round everything is left to come to rest with valid files, a second
// mesh is started cold on a copy of them, and every Envoy must hold the same clusters, endpoints, listeners and routes as its
// twin there. The seed is printed; differences are printed, and the directory is kept.
//
// It belongs to one goroutine; the goroutines of the test bed end before it does.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

// options of a run.
type options struct {
	length time.Duration
	seed   uint64
	envoys int
	keep   bool
}

func main() {
	o := options{}
	flag.DurationVar(&o.length, "for", 10*time.Minute, "how long to be rough; the round that is under way is finished")
	flag.Uint64Var(&o.seed, "seed", 0, "what the actions are drawn from; 0 draws one")
	flag.IntVar(&o.envoys, "envoys", 3, "the number of Envoys")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory also if nothing is wrong")
	flag.Parse()
	if o.seed == 0 {
		o.seed = rand.Uint64()>>32 | 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// run makes the directory, builds the programs and goes round by round.
func run(ctx context.Context, o options, w io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "chaos: seed %d, %d Envoys, %v, in %s\n", o.seed, o.envoys, o.length, dir)
	defer func() {
		switch {
		case err != nil:
			err = fmt.Errorf("seed %d, files and logs in %s: %w", o.seed, dir, err)
		case !o.keep:
			err = os.RemoveAll(dir)
		}
	}()
	programs, err := build(ctx, dir)
	if err != nil {
		return err
	}
	begin := time.Now()
	m := &mayhem{Rand: rand.New(rand.NewPCG(o.seed, o.seed)), files: newFiles(), w: w, begin: begin}
	m.mesh = &mesh{programs: programs, dir: filepath.Join(dir, "hot")}
	defer m.mesh.stop()
	if err := m.mesh.start(ctx, m.files.draw(m.Rand), o.envoys); err != nil {
		return err
	}
	for round := 1; round == 1 || time.Since(begin) < o.length; round++ {
		if err := m.round(ctx, round, filepath.Join(dir, fmt.Sprintf("cold-%d", round))); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	fmt.Fprintf(w, "chaos: nothing wrong after %v\n", time.Since(begin).Round(time.Second))
	return nil
}

// programs are the paths of the programs under test.
type programs struct{ discovery, agent, envoy string }

func build(ctx context.Context, dir string) (p programs, err error) {
	root, err := repo.Root()
	if err != nil {
		return p, err
	}
	if p.envoy, _, err = envoy.Find(ctx, root); err != nil {
		return p, err
	}
	for name, path := range map[string]*string{"pilot-discovery": &p.discovery, "pilot-agent": &p.agent} {
		if *path, err = testbed.FindOrBuild(ctx, root, name, dir); err != nil {
			return p, err
		}
	}
	return p, nil
}
