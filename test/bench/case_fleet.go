package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
)

// The size of the largest fleet. Each proxy has a connection of its own.
const (
	fleetProxies  = 10_000
	fleetClasses  = namespaces
	fleetServices = 2_000
)

// fleetTask is a fleet of Envoys with virtual hosts as resources of their own, in a process of its own.
type fleetTask struct {
	Addr             string // of the server
	Streams, Classes int
}

// run prints ready when the clients have all they asked for. For each line of in that is an address, the clients leave, and connect there with the
// versions they have. For each line, it prints ready again, and then when the last client had one more assignment, in nanoseconds since 1970.
func (t fleetTask) run(ctx context.Context, in io.Reader, out io.Writer) error {
	conns, err := dial(t.Addr, 1)
	if err != nil {
		return err
	}
	scripts, err := learnAll(ctx, conns[0], 0, t.Classes)
	hangUp(conns)
	if err != nil {
		return err
	}
	f, err := t.come(scripts)
	if err != nil {
		return err
	}
	defer func() { f.close() }()
	var said error
	ready := func() { _, said = fmt.Fprintln(out, saysReady) }
	ready()
	for asked := bufio.NewScanner(in); said == nil && asked.Scan(); {
		if addr := asked.Text(); strings.Contains(addr, ":") {
			f.close()
			if f, err = connect(addr, fleetSize{streams: t.Streams, conns: t.Streams, variant: delta, reconnect: true, split: true, patient: true}, scripts); err != nil {
				return err
			}
		}
		before := f.totals()
		r := need(0, 1, 0)
		took, err := f.await(r, ready)
		if err != nil {
			return errors.Join(said, err)
		}
		sent := f.totals().minus(before)
		if _, err := fmt.Fprintln(out, r.begin.Add(took).UnixNano(), sent.things()-t.Streams); err != nil {
			return err
		}
	}
	return said
}

// come connects the clients, and remembers in the scripts which versions the clients of each class have.
func (t fleetTask) come(scripts []*script) (*fleet, error) {
	known := &versions{by: make(map[*script]*[types]map[string]string)}
	one, err := connectWatched(t.Addr, fleetSize{streams: t.Classes, conns: t.Classes, variant: delta, split: true}, scripts, known.watch)
	if err != nil {
		return nil, err
	}
	if err := one.wait(one.settled, "the first answers of each class"); err != nil {
		return nil, err
	}
	one.close()
	for c := range maps.Keys(known.by) {
		c.remember(known.by[c])
	}
	f, err := connect(t.Addr, fleetSize{streams: t.Streams, conns: t.Streams, variant: delta, split: true, patient: true}, scripts)
	if err != nil {
		return nil, err
	}
	if err := f.wait(f.settled, "the first answers"); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// fleets measures a control plane with 10,000 proxies in 100 classes, which connect, see an edit, and connect again after a restart.
func fleets(b *bench) (err error) {
	b.release()
	proxies := fleetProxies
	if b.quick {
		proxies /= 10
	}
	w := b.world(fleetServices)
	p, err := serve(w)
	if err != nil {
		return err
	}
	defer func() { p.close() }()
	idle, err := settledMemory()
	if err != nil {
		return err
	}
	begin := time.Now()
	clients, err := b.apart(apartTask{Fleet: &fleetTask{Addr: p.addr, Streams: proxies, Classes: fleetClasses}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clients.end()) }()
	if err := clients.expect(saysReady); err != nil {
		return err
	}
	b.record("fleet-10k/cold", time.Since(begin).Seconds())
	peak, err := residentMemory(os.Getpid())
	if err != nil {
		return err
	}
	b.record("fleet-10k/memory-cold", peak/1024)
	if err := b.fleetEdits(p, w, clients); err != nil {
		return err
	}
	memory, err := settledMemory()
	if err != nil {
		return err
	}
	b.record("fleet-10k/memory", memory/1024)
	b.record("fleet-10k/per-connection", (memory-idle)*1024/float64(proxies))
	p.close()
	if p, err = serve(w); err != nil {
		return err
	}
	return b.fleetReturns(p, w, clients)
}

// fleetEdits changes endpoints one after the other.
func (b *bench) fleetEdits(p *plane, w *world, clients *process) error {
	var took []float64
	for n := range b.reps(10) {
		last, resent, err := clients.edit("next", func() { p.apply(seenByAll(w, 1+n)) })
		if err != nil {
			return err
		}
		if resent != 0 {
			return fmt.Errorf("an edit of one endpoint sent %d other resources", resent)
		}
		took = append(took, last.Seconds())
	}
	b.record("fleet-10k/endpoint-last", quantile(took, 1))
	return nil
}

// fleetReturns lets the clients connect to a server that has just started. An edit shows when the last of them is served again.
func (b *bench) fleetReturns(p *plane, w *world, clients *process) error {
	took, resent, err := clients.edit(p.addr, func() { p.apply(seenByAll(w, 1+b.reps(10))) })
	if err != nil {
		return err
	}
	b.record("fleet-10k/restart", took.Seconds())
	b.record("fleet-10k/resent", float64(resent))
	memory, err := residentMemory(os.Getpid())
	b.record("fleet-10k/memory-restart", memory/1024)
	return err
}

// seenByAll changes an endpoint of a service that all namespaces see, those with a Sidecar, too.
func seenByAll(w *world, generation int) edit {
	return edit{set: []*api.Object{w.service(scopedService, generation)}}
}

// edit sends a line to the process of a fleet, applies a change, and returns how long the last client waited for it, and how many resources beside
// the changed one the clients were sent.
func (p *process) edit(line string, apply func()) (took time.Duration, resent int, err error) {
	if _, err := fmt.Fprintln(p.stdin, line); err != nil {
		return 0, 0, err
	}
	if err := p.expect(saysReady); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	apply()
	text, err := p.line()
	if err != nil {
		return 0, 0, err
	}
	var at int64
	_, err = fmt.Sscan(text, &at, &resent)
	return time.Unix(0, at).Sub(begin), resent, err
}

// settledMemory is the resident memory of this process, in MB, without memory that the collector only keeps for later.
func settledMemory() (float64, error) {
	for range 3 { // pools keep what they have over one collection
		debug.FreeOSMemory()
	}
	return residentMemory(os.Getpid())
}
