package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
)

// The size of the largest fleet. Each proxy has a connection of its own.
const (
	fleetProxies  = 10_000
	fleetClasses  = namespaces
	fleetServices = 2_000
	// fleetManyClasses is how many classes a fleet has in which each workload has a Sidecar of its own.
	fleetManyClasses = 2_000
)

// fleets measures a control plane with 10,000 proxies in 100 classes, which connect, see an edit, and connect again after a restart.
func fleets(b *bench) error {
	return b.fleetOf("fleet-10k/", b.world(cmp.Or(b.fleet.services, fleetServices)), fleetClasses)
}

// fleetClassy measures 10,000 proxies in 2,000 classes: five proxies of each of 20 workloads in each namespace.
func fleetClassy(b *bench) error {
	w, classes := b.world(cmp.Or(b.fleet.services, fleetServices)), fleetManyClasses
	if b.quick {
		classes /= 10
	}
	return b.fleetOf("fleet-2k-classes/", w.withWorkloads(classes/namespaces), classes)
}

// fleetsWide does the same with 10,000 services.
func fleetsWide(b *bench) error {
	services := 5 * fleetServices
	if b.quick {
		services = fleetServices
	}
	return b.fleetOf("fleet-10k-services/", b.world(cmp.Or(b.fleet.services, services)), fleetClasses)
}

// fleetOf measures one server of a world with a fleet. The flags may ask for another fleet.
func (b *bench) fleetOf(name string, w *world, classes int) (err error) {
	b.release()
	proxies := b.fleetProxies()
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
	clients, err := b.apart(apartTask{Fleet: &fleetTask{Addrs: []string{p.addr}, Streams: proxies, Classes: classes}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clients.end()) }()
	guard := guardMemory(clients)
	defer func() { err = errors.Join(guard.end(), err) }()
	if err := clients.expect(saysReady); err != nil {
		return err
	}
	b.record(name+"cold", time.Since(begin).Seconds())
	peak, err := residentMemory(os.Getpid())
	if err != nil {
		return err
	}
	b.record(name+"memory-cold", peak/1024)
	if err := b.fleetEdits(name, p, w, clients); err != nil {
		return err
	}
	memory, err := settledMemory()
	if err != nil {
		return err
	}
	if err := b.heapProfile(name + "settled"); err != nil {
		return err
	}
	b.record(name+"memory", memory/1024)
	b.record(name+"per-connection", (memory-idle)*1024/float64(proxies))
	p.close()
	if p, err = serve(w); err != nil {
		return err
	}
	return b.fleetReturns(name, p, w, clients)
}

// memoryLeft is how much memory a fleet leaves to everything else on the machine, in MB.
const memoryLeft = 1500

// memoryGuard ends the clients of a fleet before the machine has no memory left.
type memoryGuard struct {
	stop  chan struct{}
	group sync.WaitGroup
	err   error
}

func guardMemory(clients *process) *memoryGuard {
	g := &memoryGuard{stop: make(chan struct{})}
	g.group.Go(func() {
		for {
			free, err := memoryAvailable()
			if err != nil || free < memoryLeft {
				mine, _ := residentMemory(os.Getpid()) // 0 if unknown
				theirs, _ := residentMemory(clients.cmd.Process.Pid)
				g.err = errors.Join(err, fmt.Errorf("the limit is memory: %.0f MB are left, the server has %.0f MB and the clients %.0f MB", free, mine, theirs), clients.cmd.Process.Kill())
				return
			}
			select {
			case <-g.stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return g
}

// end ends the guard. It returns an error if the guard has ended the clients.
func (g *memoryGuard) end() error {
	close(g.stop)
	g.group.Wait()
	return g.err
}

// memoryAvailable is the memory of the machine that programs can still get, in MB.
func memoryAvailable() (float64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "MemAvailable:")
	var kilobytes float64
	_, err = fmt.Sscan(rest, &kilobytes)
	return kilobytes / 1024, err
}

// fleetEdits changes endpoints one after the other.
func (b *bench) fleetEdits(name string, p *plane, w *world, clients *process) error {
	var took []float64
	for n := range b.reps(10) {
		last, resent, err := clients.order(fleetOrder{Assignments: 1}, func() { p.apply(seenByAll(w, 1+n)) })
		if err != nil {
			return err
		}
		if resent != 0 {
			return fmt.Errorf("an edit of one endpoint sent %d other resources", resent)
		}
		took = append(took, last.Seconds())
	}
	b.record(name+"endpoint-last", quantile(took, 1))
	return nil
}

// fleetReturns lets the clients connect to a server that has just started. An edit shows when the last of them is served again.
func (b *bench) fleetReturns(name string, p *plane, w *world, clients *process) error {
	took, resent, err := clients.order(fleetOrder{Connect: []string{p.addr}, Assignments: 1}, func() { p.apply(seenByAll(w, 1+b.reps(10))) })
	if err != nil {
		return err
	}
	b.record(name+"restart", took.Seconds())
	b.record(name+"resent", float64(resent))
	memory, err := residentMemory(os.Getpid())
	b.record(name+"memory-restart", memory/1024)
	return errors.Join(err, b.heapProfile(name+"restarted"))
}

// seenByAll changes an endpoint of a service that all namespaces see, also namespaces with a Sidecar.
func seenByAll(w *world, generation int) edit {
	return edit{set: []*api.Object{w.service(scopedService, generation)}}
}

// fleetProxies is how many proxies a fleet has.
func (b *bench) fleetProxies() int {
	n := cmp.Or(b.fleet.proxies, fleetProxies)
	if b.quick {
		n /= 10
	}
	return n
}

// order sends an order to the process of a fleet, applies a change, and returns how long the last client waited for it, and how many resources beside
// the changed one the clients were sent.
func (p *process) order(o fleetOrder, apply func()) (took time.Duration, resent int, err error) {
	line, err := json.Marshal(o)
	if err != nil {
		return 0, 0, err
	}
	if _, err := fmt.Fprintln(p.stdin, string(line)); err != nil {
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
	for range 3 { // pools keep their content over one collection
		debug.FreeOSMemory()
	}
	return residentMemory(os.Getpid())
}
