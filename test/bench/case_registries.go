package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pilotmesh/pilot/internal/api/registry"
	kit "github.com/pilotmesh/pilot/test/kit/process"
	"github.com/pilotmesh/pilot/test/registries/servers"
	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

const (
	fewRegistered  = 100 // services
	manyRegistered = 10_000
	replicas       = 3
	registryNodes  = 30
	registryFleet  = 500 // streams
	registryIdle   = time.Minute
)

// registered is a control plane, as a process, that reads a real registry through a wire.
type registered struct {
	dir       string
	server    registryServer
	wire      *wire
	discovery *testbed.Discovery
	fleet     *fleet
	services  int
}

// registered starts a registry of a kind with services, and prepares the control plane. The error wraps errSkipped if there is no such server.
func (b *bench) registered(kind registryKind, services int) (r *registered, err error) {
	r = &registered{services: services}
	root, err := repo.Root()
	if err != nil {
		return r, err
	}
	if r.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return r, err
	}
	server, err := kind.start(root, r.dir)
	if err != nil {
		if missing, ok := errors.AsType[*servers.Missing](err); ok {
			err = fmt.Errorf("%w: %w", errSkipped, missing)
		}
		return r, err
	}
	r.server = server
	if err := r.server.Start(b.ctx); err != nil {
		return r, err
	}
	var all []servers.Instance
	for n := range services * replicas {
		all = append(all, r.instance(n/replicas, n%replicas))
	}
	if err := r.server.RegisterAll(b.ctx, all); err != nil {
		return r, err
	}
	if r.wire, err = newWire(r.server.Address(), kind.further); err != nil {
		return r, err
	}
	r.wire.least, r.wire.repeats = kind.least, kind.repeats
	binary, err := testbed.Build(b.ctx, root, "pilot-discovery", r.dir)
	if err != nil {
		return r, err
	}
	if r.discovery, err = testbed.NewDiscovery(binary, r.dir); err != nil {
		return r, err
	}
	file := filepath.Join(r.dir, "registries.yaml")
	text := fmt.Sprintf("registries: [{type: %s, addresses: [%q], readyTimeout: 2m, protection: {hold: 10m}}]\n", kind.name, testbed.Loopback(r.wire.port()))
	r.discovery.Args = []string{"--registriesConfig=" + file}
	return r, os.WriteFile(file, []byte(text), 0o600)
}

// instance is one replica of a service. The replicas from replicas on are further ones.
func (r *registered) instance(service, replica int) servers.Instance {
	return servers.Instance{
		Node: fmt.Sprintf("node-%d", (service+replica)%registryNodes), Service: fmt.Sprintf("svc-%d", service), Port: 8080,
		Address: fmt.Sprintf("10.%d.%d.%d", replica, service>>8, service&255), Meta: map[string]string{"protocol": "http", "version": "v1"},
	}
}

func (r *registered) close() {
	if r.fleet != nil {
		r.fleet.close()
	}
	if r.discovery != nil {
		r.discovery.Stop()
	}
	if r.server != nil {
		r.server.Kill()
	}
	if r.wire != nil {
		r.wire.close()
	}
	os.RemoveAll(r.dir)
}

// connect starts streams of one class and waits until they are settled.
func (r *registered) connect(b *bench, streams int) error {
	conns, err := dial(r.discovery.GRPC, 1)
	if err != nil {
		return err
	}
	defer hangUp(conns)
	scripts, err := learnAll(b.ctx, conns[0], 0, 1)
	if err != nil {
		return err
	}
	r.fleet, err = connect(r.discovery.GRPC, fleetSize{streams: streams, conns: min(b.conns, streams), variant: delta, first: 1}, scripts)
	if err != nil {
		return err
	}
	return r.fleet.wait(r.fleet.settled, "the first answers")
}

// arrivals registers an instance and takes it away, again and again, each after all streams have the change before. It records how long the
// last stream waits since the request to the server, and since the server's answer to the control plane.
func (r *registered) arrivals(b *bench, name string, n int) error {
	var whole, own []float64
	want := 0
	var before totals
	for i := range n + 1 {
		one := r.instance(i/2%r.services, replicas)
		change := r.server.Register
		if i%2 == 1 {
			change = r.server.Deregister
		}
		if err := b.pause(b.sizes.settle / 3); err != nil {
			return err
		}
		if i == 1 { // the first one grows buffers
			before, want, whole, own = r.fleet.totals(), 0, nil, nil
		}
		var failed error
		round := need(0, 1, 0)
		r.wire.arm()
		last, err := r.fleet.await(round, func() { failed = change(b.ctx, one) })
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		want += round.concerned
		whole = append(whole, millis(last))
		end := round.begin.Add(last)
		own = append(own, millis(end.Sub(r.wire.answer(end))))
	}
	if err := b.pause(b.sizes.settle); err != nil {
		return err
	}
	b.record(name+"/last-p50", median(whole))
	b.record(name+"/last-p99", quantile(whole, 0.99))
	b.record(name+"/own-p50", median(own))
	b.record(name+"/own-p99", quantile(own, 0.99))
	b.record(name+"/extra", float64(max(0, r.fleet.totals().minus(before).things()-want))/float64(n*len(r.fleet.streams)))
	return nil
}

// registryChanges are single changes of a registry of usual size, with many streams.
func registryChanges(b *bench, kind registryKind) error {
	name := "registries-change-" + kind.name
	r, err := b.registered(kind, fewRegistered)
	defer r.close()
	if err == nil {
		err = r.discovery.Start(b.ctx)
	}
	if err == nil {
		err = r.connect(b, registryFleet)
	}
	if err != nil {
		return err
	}
	if err := r.arrivals(b, name, b.reps(150)); err != nil {
		return err
	}
	b.record(name+"/connections", float64(r.wire.most.Load()))
	return r.lose(b, name)
}

// lose kills the server and starts it again without its data. Proxies must be sent nothing, and all services must stay.
func (r *registered) lose(b *bench, name string) error {
	before := r.fleet.totals()
	was, err := r.status(b.ctx, registry.Synced)
	if err != nil {
		return err
	}
	r.server.Kill()
	if _, err := r.status(b.ctx, registry.Stale); err != nil {
		return err
	}
	if err := errors.Join(r.server.Wipe(), r.server.Start(b.ctx)); err != nil {
		return err
	}
	is, err := r.status(b.ctx, registry.Held)
	if err != nil {
		return err
	}
	if err := b.pause(2 * time.Second); err != nil {
		return err
	}
	b.record(name+"/sent-after-loss", float64(r.fleet.totals().minus(before).things()))
	b.record(name+"/withdrawn-after-loss", float64(was.Instances-is.Instances))
	return nil
}

// status waits until the registry has a state.
func (r *registered) status(ctx context.Context, want string) (is registry.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return is, testbed.Until(ctx, "the registry to be "+want, func(ctx context.Context) error {
		page, err := r.discovery.Get(ctx, "/debug/registries")
		var list []registry.Status
		if err == nil {
			err = json.Unmarshal([]byte(page), &list)
		}
		if err == nil && (len(list) != 1 || list[0].State != want) {
			err = errors.New(page)
		}
		if err == nil {
			is = list[0]
		}
		return err
	})
}

// registryChurn changes instances of one service after the other. A change is not waited for: the next comes 10 ms later.
func registryChurn(b *bench) error {
	r, err := b.registered(consulKind(), fewRegistered)
	defer r.close()
	if err == nil {
		err = r.discovery.Start(b.ctx)
	}
	if err == nil {
		err = r.connect(b, b.sizes.fewer)
	}
	if err != nil {
		return err
	}
	return r.churn(b, "registries-churn", 2*b.sizes.churn)
}

// churn registers instances of 100 services and takes them away for a time, and records how long after the request each stream had the endpoint.
func (r *registered) churn(b *bench, name string, d time.Duration) error {
	changes := int(d.Seconds() * churnRate)
	s := newStaleness(r.services, len(r.fleet.streams), changes)
	r.fleet.observe(s.watch)
	defer r.fleet.observe(nil)
	tick := time.NewTicker(time.Second / churnRate)
	defer tick.Stop()
	used, err := kit.CPUTime(r.discovery.PID())
	if err != nil {
		return err
	}
	begin := time.Now()
	for n := range changes {
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
		service := n % fewRegistered
		change := r.server.Register
		if n/fewRegistered%2 == 1 {
			change = r.server.Deregister
		}
		s.changed[service].Store(int64(time.Since(s.begin)))
		if err := change(b.ctx, r.instance(service, replicas)); err != nil {
			return err
		}
	}
	took := time.Since(begin)
	after, err := kit.CPUTime(r.discovery.PID())
	if err != nil {
		return err
	}
	if err := b.pause(time.Second); err != nil {
		return err
	}
	var pool []float64
	for i := range s.samples {
		own := &s.samples[i]
		pool = append(pool, own.ms[:own.n.Load()]...)
	}
	b.record(name+"/rate", float64(changes)/took.Seconds())
	b.record(name+"/staleness-p50", quantile(pool, 0.5))
	b.record(name+"/staleness-p99", quantile(pool, 0.99))
	b.record(name+"/delivered", 100*float64(len(pool))/float64(changes*len(r.fleet.streams)))
	b.record(name+"/server-cores", (after-used).Seconds()/took.Seconds())
	return nil
}

// registryLarge is a Consul with many services: its list, the rest, single changes, a stream of changes, and the loss of its data.
func registryLarge(b *bench) error {
	const name = "registries-10k"
	r, err := b.registered(consulKind(), manyRegistered)
	defer r.close()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := r.discovery.Start(b.ctx); err != nil {
		return err
	}
	b.record(name+"/ready", time.Since(begin).Seconds())
	b.record(name+"/ready-after-answers", time.Since(time.Unix(0, r.wire.content.Load())).Seconds())
	b.record(name+"/connections", float64(r.wire.most.Load()))
	if err := r.connect(b, wide); err != nil {
		return err
	}
	if err := r.rest(b, name); err != nil {
		return err
	}
	if err := r.arrivals(b, name, b.reps(20)); err != nil {
		return err
	}
	if err := r.churn(b, name+"-churn", b.sizes.churn/2); err != nil {
		return err
	}
	return r.lose(b, name)
}

// rest records what the control plane needs while nothing happens.
func (r *registered) rest(b *bench, name string) error {
	d := registryIdle
	if b.quick {
		d /= 3
	}
	used, err := kit.CPUTime(r.discovery.PID())
	if err != nil {
		return err
	}
	bytes := r.wire.bytes.Load()
	if err := b.pause(d); err != nil {
		return err
	}
	after, err := kit.CPUTime(r.discovery.PID())
	b.record(name+"/idle", 100*(after-used).Seconds()/d.Seconds())
	b.record(name+"/idle-bytes", float64(r.wire.bytes.Load()-bytes)/kilobyte/d.Seconds())
	return err
}

// registryFigures are the figures of services in real registries. "own" is the time from the server's answer to the last stream.
func registryFigures() (all []figure) {
	for _, kind := range []registryKind{consulKind(), zooKeeperKind(), nacosKind()} {
		name := "registries-change-" + kind.name
		all = append(all,
			watched(name+"/last-p50", "ms", 0),
			watched(name+"/last-p99", "ms", 0),
			watched(name+"/own-p50", "ms", 0),
			atMost(20, name+"/own-p99", "ms", 0),
			never(0, name+"/extra", "resources", 0),
			watched(name+"/connections", "connections", 0),
			never(0, name+"/sent-after-loss", "resources", 0),
			never(0, name+"/withdrawn-after-loss", "instances", 0),
		)
	}
	return append(all,
		watched("registries-churn/rate", "changes/s", 0),
		watched("registries-churn/staleness-p50", "ms", 0),
		atMost(200, "registries-churn/staleness-p99", "ms", 0),
		watched("registries-churn/delivered", "%", 0),
		watched("registries-churn/server-cores", "cores", 0),
		watched("registries-10k/ready", "s", 0),
		atMost(10, "registries-10k/ready-after-answers", "s", 0),
		atMost(200, "registries-10k/connections", "connections", 0),
		atMost(2, "registries-10k/idle", "% of a core", 0),
		watched("registries-10k/idle-bytes", "KB/s", 0),
		watched("registries-10k/last-p50", "ms", 0),
		watched("registries-10k/last-p99", "ms", 0),
		watched("registries-10k/own-p50", "ms", 0),
		watched("registries-10k/own-p99", "ms", 0),
		never(0, "registries-10k/extra", "resources", 0),
		watched("registries-10k-churn/rate", "changes/s", 0),
		watched("registries-10k-churn/staleness-p50", "ms", 0),
		watched("registries-10k-churn/staleness-p99", "ms", 0),
		watched("registries-10k-churn/delivered", "%", 0),
		watched("registries-10k-churn/server-cores", "cores", 0),
		never(0, "registries-10k/sent-after-loss", "resources", 0),
		never(0, "registries-10k/withdrawn-after-loss", "instances", 0),
	)
}
