package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// bench is a run of the benchmark: the figures measured so far, and the state that cases share.
type bench struct {
	options
	ctx context.Context //nolint:containedctx // one per process; cases look at it in pauses
	got measured
	log io.Writer

	worlds  map[int]*world
	scripts map[scriptsKey][]*script
	taken   map[string]int // profiles by name
	mesh    *mesh          // the one in use, kept because the next case may want the same
}

func newBench(ctx context.Context, o options) *bench {
	return &bench{
		ctx: ctx, options: o, got: make(measured), log: os.Stderr,
		scripts: make(map[scriptsKey][]*script), worlds: make(map[int]*world), taken: make(map[string]int),
	}
}

// scriptsKey names the scripts of the first namespaces of a world.
type scriptsKey struct {
	services, from, count int
}

// wide are the namespaces of the 20 classes most cases use: each sees everything.
const wide = 20

// experiment is one case: its name, a description, and the function that runs it.
type experiment struct {
	name, what string
	run        func(b *bench) error
}

func experiments() []experiment {
	return []experiment{
		{"endpoint-1k", "one endpoint changes, 1,000 services, 500 streams, 20 classes", endpoints},
		{"virtualservice-1k", "a weight of a VirtualService changes, 1,000 services, 500 streams", (*bench).routesSmall},
		{"destinationrule-1k", "a limit of a DestinationRule changes, 1,000 services, 500 streams", policies},
		{"service-add-1k", "a service is added, 1,000 services, 500 streams", additions},
		{"service-remove-1k", "a service is removed, 1,000 services, 500 streams", removals},
		{"sidecar-1k", "a host of a Sidecar changes, 1,000 services, 500 streams and 5 in its namespace", scopes1k},
		{"noop-1k", "objects come again as they are, 1,000 services, 500 streams", noop},
		{"three-envoys", "a weight in a file changes, three real Envoys under pilot-agent", threeEnvoys},
		{"virtualservice-10k", "a weight of a VirtualService changes, 10,000 services, 20 streams", (*bench).routesLarge},
		{"virtualhost-1k", "the same, a service added and one removed, for clients with virtual hosts as resources, 1,000 services, 500 streams", (*bench).hostsSmall},
		{"virtualhost-10k", "a weight of a VirtualService changes, for such clients, 10,000 services, 20 streams", (*bench).hostsLarge},
		{"demand-10k", "the memory of a real Envoy with 10,000 services, with and without hosts on demand", demanded},
		{"edit-envoy-1k", "an edit takes effect in a real Envoy with 1,000 hosts, with and without virtual hosts as resources, and 20 edits a second", editsAtEnvoys},
		{"edits-10k", "10,000 edits, restarts of the control plane and reconnects while real Envoys are asked", edited10k},
		{"virtualhost-reconnect-1k", "500 such clients come back to a restarted server, 1,000 services", reconnectHosts},
		{"gateway-1k", "a route, another host, another Gateway, and a certificate renewed, 1,000 TLS hosts on 50 replicas of a gateway; and the same without certificates on demand", gateways},
		{"fleet-10k", "10,000 proxies in 100 classes, each with a connection, 2,000 services: connect, an edit, a restart", fleets},
		{"fleet-10k-services", "the same with 10,000 services", fleetsWide},
		{"fleet-2k-classes", "10,000 proxies in 2,000 classes, 2,000 services: connect, an edit, a restart", fleetClassy},
		{"fleet-two", "10,000 proxies at two replicas, 2,000 services: an edit, churn, 1,000 proxies in other classes, a rolling upgrade", fleetOfTwo},
		{"churn", "100 endpoint changes a second, 1,000 services, 200 streams", churn},
		{"cold-1k", "500 streams connect to a fresh server, 1,000 services", coldSmall},
		{"cold-10k", "20 streams connect to a fresh server, 10,000 services", coldLarge},
		{"building-10k", "endpoint changes while 20 new classes are built, 10,000 services", building},
		{"rejections-5k", "200 proxies reject 50 clusters each, 5,000 services", rejections},
		{"hostile-5k", "one proxy comes ten times and rejects 4,096 clusters each time, 5,000 services", hostile},
		{"faults-2k", "1,000 cells fail, 2,000 services", faulty},
		{"crowded", "one address of a service with 10,000 changes", crowded},
		{"first-build-10k", "a class is built under 100 commits a second, 10,000 services", firstBuild},
		{"mesh-wide-10k", "changes that concern everything, 10,000 services, 20 classes", meshWideChanges},
		{"derived-10k", "what 20 classes add to the rows of 10,000 services", derived},
		{"stream-memory", "what a settled stream retains beyond one of a bare grpc-go server", streamMemory},
		{"reconnect-1k", "500 streams come back to a restarted server, 1,000 services", reconnect},
		{"policies-1k", "changes in a mesh with 200 policies beside one without, 1,000 services, 500 streams each", policed},
		{"patches-1k", "an EnvoyFilter comes for one workload, and one for all changes; other changes in a mesh with it, metrics, logs and policies beside one without, 1,000 services, 500 streams each", patched},
		{"metrics-envoy", "the CPU time of two real Envoys per request, with the metrics of the mesh and without", metered},
		{"analyze-10k", "pilotctl analyze reads a file with 10,000 objects", analyzed},
		{"certificates", "1,000 agents start at once and get certificates; 500 of them stay", certificates},
		{"relay-1k", "xDS of 1,000 services through a real pilot-agent, and past it", relayed},
		{"names-10k", "5,000 DNS queries a second for 10,000 names of a real pilot-agent", namesInAgent},
		{"registries-change-consul", "an instance registers in a real Consul, 100 services, 500 streams; it loses its data", func(b *bench) error { return registryChanges(b, consulKind()) }},
		{"registries-change-zookeeper", "the same in a real ZooKeeper", func(b *bench) error { return registryChanges(b, zooKeeperKind()) }},
		{"registries-change-nacos", "the same in rnacos, which has the protocols of Nacos", func(b *bench) error { return registryChanges(b, nacosKind()) }},
		{"registries-churn", "100 instances a second register in a real Consul or leave it, 100 services, 200 streams", registryChurn},
		{"registries-10k", "a real Consul with 10,000 services of 3 instances: list, rest, changes, 100 changes a second, loss of its data", registryLarge},
		{"capture", "the rules of a sidecar are set in a fresh network namespace", captured},
		{"neighbour", "one namespace does everything that costs the control plane, while another one works", neighbours},
		{"silent-1k", "200 of 500 streams never read, 1,000 services", silent},
	}
}

// all runs the selected cases. A case that cannot run does not stop the others.
func (b *bench) all() error {
	var failed []error
	n := 0
	for _, e := range experiments() {
		if !b.run.MatchString(e.name) {
			continue
		}
		if b.ctx.Err() != nil {
			failed = append(failed, context.Cause(b.ctx))
			break
		}
		n++
		begin := time.Now()
		fmt.Fprintf(b.log, "%-20s %s ... ", e.name, e.what)
		err := e.run(b)
		if errors.Is(err, errSkipped) {
			fmt.Fprintln(b.log, err)
			continue
		}
		if err != nil {
			fmt.Fprintln(b.log, "could not run:", err)
			failed = append(failed, fmt.Errorf("%s: %w", e.name, err))
			b.release() // whatever it used may be broken
			continue
		}
		fmt.Fprintf(b.log, "%.1fs\n", time.Since(begin).Seconds())
	}
	if n == 0 {
		return errors.New("no case matches -run")
	}
	return errors.Join(failed...)
}

// record adds one repetition's value of a figure.
func (b *bench) record(figure string, v float64) {
	b.got[figure] = append(b.got[figure], v)
}

// reps is how often something is repeated.
func (b *bench) reps(n int) int {
	if b.quick {
		return max(1, n/3)
	}
	return n
}

func (b *bench) world(services int) *world {
	w := b.worlds[services]
	if w == nil {
		w = newWorld(services, false)
		b.worlds[services] = w
	}
	return w
}

// learned are the scripts of count namespaces from one on, found out with a server of their own.
func (b *bench) learned(services, from, count int) ([]*script, error) {
	k := scriptsKey{services, from, count}
	if list := b.scripts[k]; list != nil {
		return list, nil
	}
	p, err := serve(b.world(services))
	if err != nil {
		return nil, err
	}
	defer p.close()
	conns, err := dial(p.addr, 1)
	if err != nil {
		return nil, err
	}
	defer hangUp(conns)
	list, err := learnAll(b.ctx, conns[0], from, count)
	if err != nil {
		return nil, err
	}
	b.scripts[k] = list
	return list, nil
}

// mesh is a control plane with a settled fleet.
type mesh struct {
	world    *world
	plane    *plane
	fleet    *fleet
	services int
	size     fleetSize
	edits    map[string]int // how many of each kind were made
}

// quiet waits until nothing has come for a while, and the collector has run.
func (m *mesh) quiet(b *bench) error {
	for before := int64(-1); ; {
		now := m.fleet.totals().responses
		if now == before {
			return b.calm()
		}
		before = now
		if err := b.pause(b.sizes.settle); err != nil {
			return err
		}
	}
}

// settled is a mesh of a size whose streams have all they asked for: the one of the case before if that has this size.
func (b *bench) settled(services int, size fleetSize) (*mesh, error) {
	if b.mesh != nil && b.mesh.services == services && b.mesh.size == size {
		return b.mesh, b.mesh.quiet(b)
	}
	b.release()
	scripts, err := b.learned(services, 0, wide)
	if err != nil {
		return nil, err
	}
	m := &mesh{world: b.world(services), services: services, size: size, edits: make(map[string]int)}
	if m.plane, err = serve(m.world); err != nil {
		return nil, err
	}
	b.mesh = m
	if m.fleet, err = connect(m.plane.addr, size, scripts); err != nil {
		return nil, err
	}
	if err := m.fleet.wait(m.fleet.settled, "the first answers"); err != nil {
		return nil, err
	}
	return m, m.quiet(b)
}

// release closes the shared mesh.
func (b *bench) release() {
	if b.mesh == nil {
		return
	}
	if b.mesh.fleet != nil {
		b.mesh.fleet.close()
	}
	b.mesh.plane.close()
	b.mesh = nil
}
