package main

import (
	"fmt"
	"runtime"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// loopFigures are the figures of load that could keep the loop from its work.
func loopFigures() []figure {
	list := []figure{
		never(20, "rejections-5k/blocked", "ms", 0),
		watched("rejections-5k/all", "ms", 0),
		never(0, "rejections-5k/cells-beyond", "cells", 0),
		never(20, "hostile-5k/blocked", "ms", 0),
		never(0, "hostile-5k/cells-beyond", "cells", 0),
		watched("hostile-5k/cpu", "CPU-ms", 0),
		atMost(0.1, "faults-2k/turn", "ms", 0),
		watched("faults-2k/all", "ms", 0),
		atMost(5, "crowded/cpu", "CPU-ms", 0),
		atMost(5, "first-build-10k/built-in", "s", 0),
		watched("first-build-10k/waited-p50", "ms", 0),
		watched("first-build-10k/waited-max", "ms", 0),
	}
	for _, m := range meshWide() {
		list = append(list, watched("mesh-wide-10k/"+m.name, "ms", 0),
			watched("mesh-wide-10k/"+m.name+"-cpu", "CPU-ms", 0), watched("mesh-wide-10k/"+m.name+"-garbage", "MB", 0))
	}
	return list
}

// blocked returns the longest time that the loop did not read its input, and the whole time, while fn ran and until its work
// was done: nothing is pending, and done says so, if it is given.
func (p *plane) blocked(fn func(), done ...func(*loop.View) bool) (longest, all time.Duration, err error) {
	begin := time.Now()
	fn()
	for idle := false; !idle; {
		asked := time.Now()
		err := p.inspect(func(v *loop.View) {
			idle = !v.Graph.Pending()
			for _, also := range done {
				idle = idle && also(v)
			}
		})
		if err != nil {
			return 0, 0, err
		}
		longest = max(longest, time.Since(asked))
	}
	return longest, time.Since(begin), nil
}

// attached connects n proxies of one namespace without streams, and returns them with the state of their class.
func (p *plane) attached(n int) (conns []*loop.Connection, st *resource.State, err error) {
	built := newLatch(n)
	for i := range n {
		parsed, err := proxy.Parse(proxy.Node{ID: node(0, 0, i).GetId(), Metadata: node(0, 0, i).GetMetadata()})
		if err != nil {
			return nil, nil, err
		}
		c, err := p.loop.Attach(parsed, &onceWatcher{latch: built})
		if err != nil {
			return nil, nil, err
		}
		conns = append(conns, c)
	}
	select {
	case <-built.open:
	case <-time.After(patience):
		return nil, nil, fmt.Errorf("%d proxies had no state within %v", n, patience)
	}
	err = p.inspect(func(v *loop.View) {
		for c := range v.Classes {
			st = v.State(c)
		}
	})
	return conns, st, err
}

// onceWatcher is a stand-in for a stream. It counts its latch down at the first state.
type onceWatcher struct {
	latch *latch
	told  bool
}

// Update is called by the loop only.
func (*onceWatcher) Answer([]protocol.Answer) {}

func (w *onceWatcher) Update(*resource.State) {
	if !w.told {
		w.told = true
		w.latch.done()
	}
}

// cellsOf are the cells that a change of one endpoint runs.
func (p *plane) cellsOf(w *world, n int) (float64, error) {
	if _, err := p.takeCommits(); err != nil {
		return 0, err
	}
	p.apply(endpointChange().step(w, n).edit)
	commits, err := p.takeCommits()
	if err != nil {
		return 0, err
	}
	cells := 0
	for _, c := range commits {
		cells += sum(c.Cells)
	}
	return float64(cells), nil
}

// pinsOf are rejections of the first clusters of a state.
func pinsOf(w *world, st *resource.State, n int) (pins []reject.Pin) {
	for i := 0; len(pins) < n && i < w.services; i++ {
		if r, ok := st.Get(resource.Cluster, w.cluster(i)); ok {
			pins = append(pins, reject.Pin{Type: resource.Cluster, Name: w.cluster(i), Rejected: r.ContentHash()})
		}
	}
	return pins
}

// rejections lets 200 proxies reject 50 clusters each.
func rejections(b *bench) error {
	const name = "rejections-5k"
	b.release()
	w := b.world(b.sizes.large / 2)
	return b.rejecting(name, w, 200, func(p *plane, conns []*loop.Connection, st *resource.State) (time.Duration, time.Duration, error) {
		pins := pinsOf(w, st, 50)
		return p.blocked(func() {
			for _, c := range conns {
				c.Pin(pins, "no such thing")
			}
		}, func(v *loop.View) bool { return v.Tables.Rejections.Len() == len(conns)*len(pins) })
	})
}

// hostile lets one proxy come again and again and reject as much as the protocol allows.
func hostile(b *bench) error {
	b.release()
	w := b.world(b.sizes.large / 2)
	return b.rejecting("hostile-5k", w, 1, func(p *plane, conns []*loop.Connection, st *resource.State) (longest, all time.Duration, err error) {
		pins := pinsOf(w, st, 4096)
		for i := range pins {
			pins[i].Rejected = omap.Sum([]byte(pins[i].Name))
		}
		used := cpuTime()
		for range 10 {
			conns[0].Close()
			if conns, _, err = p.attached(1); err != nil {
				return 0, 0, err
			}
			one, took, err := p.blocked(func() { conns[0].Pin(pins, "no") })
			if err != nil {
				return 0, 0, err
			}
			longest, all = max(longest, one), all+took
		}
		b.record("hostile-5k/cpu", millis(cpuTime()-used)/10)
		return longest, all, nil
	})
}

func (b *bench) rejecting(name string, w *world, proxies int, do func(*plane, []*loop.Connection, *resource.State) (longest, all time.Duration, err error)) error {
	for range b.reps(3) {
		p, err := newPlane(w)
		if err != nil {
			return err
		}
		defer p.close()
		conns, st, err := p.attached(proxies)
		if err != nil {
			return err
		}
		before, err := p.cellsOf(w, 1)
		if err != nil {
			return err
		}
		if err := b.calm(); err != nil {
			return err
		}
		var longest, all time.Duration
		if err := b.profiled(name, func() (err error) { longest, all, err = do(p, conns, st); return err }); err != nil {
			return err
		}
		after, err := p.cellsOf(w, 2)
		if err != nil {
			return err
		}
		b.record(name+"/blocked", millis(longest))
		if name == "rejections-5k" {
			b.record(name+"/all", millis(all))
		}
		b.record(name+"/cells-beyond", after-before)
	}
	return nil
}

// faulty gives 1,000 cells a bug, and measures the cost of a turn of the loop afterwards.
func faulty(b *bench) error {
	b.release()
	w := b.world(2 * b.sizes.small)
	p, err := newPlane(w)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.join(0); err != nil {
		return err
	}
	var e edit
	for i := range min(1000, w.services) {
		spec := &networking.VirtualService{Hosts: []string{w.host(i)}, Http: []*networking.HTTPRoute{{
			Name:  "\xff", // no source lets this through: a name that cannot be encoded
			Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: w.host(i)}}},
		}}}
		key := api.Key{Kind: "VirtualService", Namespace: namespace(i % namespaces), Name: fmt.Sprint("broken-", i)}
		e.set = append(e.set, &api.Object{Key: key, Spec: spec, Hash: omap.Sum([]byte(key.Name))})
	}
	_, all, err := p.blocked(func() { p.apply(e) })
	if err != nil {
		return err
	}
	b.record("faults-2k/all", millis(all))
	for range b.reps(100) {
		begin := time.Now()
		if err := p.inspect(func(*loop.View) {}); err != nil {
			return err
		}
		b.record("faults-2k/turn", millis(time.Since(begin)))
	}
	return nil
}

// crowded changes one address of a service that has 10,000.
func crowded(b *bench) error {
	b.release()
	w := newWorld(b.sizes.tiny, false)
	big := func(generation int) *api.Object {
		o := *w.service(1, 0)
		spec := proto.Clone(o.Spec).(*networking.ServiceEntry)
		spec.Endpoints = nil
		for i := range b.sizes.large {
			g := 0
			if i == b.sizes.large/2 {
				g = generation
			}
			spec.Endpoints = append(spec.Endpoints, workload(i, 0, g))
		}
		return object(o.Namespace, o.Name, spec)
	}
	p, err := newPlane(w)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.join(0); err != nil {
		return err
	}
	p.apply(edit{set: []*api.Object{big(0)}})
	for i := range b.reps(9) {
		o := big(i + 1)
		if err := b.calm(); err != nil {
			return err
		}
		before := cpuTime()
		if err := b.profiled("crowded", func() error { _, _, err := p.blocked(func() { p.apply(edit{set: []*api.Object{o}}) }); return err }); err != nil {
			return err
		}
		b.record("crowded/cpu", millis(cpuTime()-before))
	}
	return nil
}

// firstBuild builds a class over 10,000 services under 100 commits a second, each of a hundred endpoints.
func firstBuild(b *bench) error {
	b.release()
	w := b.world(b.sizes.large)
	for range b.reps(3) {
		p, err := newPlane(w)
		if err != nil {
			return err
		}
		defer p.close()
		if err := p.join(firstScoped); err != nil { // each commit updates the state of this proxy
			return err
		}
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				var e edit
				for i := range 100 {
					e.set = append(e.set, w.service(plain(i), n))
				}
				p.loop.Apply(source.Batch{Source: sourceName, Events: e.events(), Synced: true})
			}
		}()
		var waited []float64
		begin, built := time.Now(), make(chan error, 1)
		err = b.profiled("first-build-10k", func() error {
			go func() { built <- p.join(0) }()
			for {
				select {
				case err := <-built:
					return err
				default:
				}
				asked := time.Now()
				if err := p.inspect(func(*loop.View) {}); err != nil {
					return err
				}
				waited = append(waited, millis(time.Since(asked)))
			}
		})
		took := time.Since(begin)
		close(stop)
		<-stopped
		if err != nil {
			return err
		}
		b.record("first-build-10k/built-in", took.Seconds())
		b.record("first-build-10k/waited-p50", median(waited))
		b.record("first-build-10k/waited-max", quantile(waited, 1))
	}
	return nil
}

// meshChange is a change that concerns everything, and the change that reverts it; nil if none is needed.
type meshChange struct {
	name     string
	do, undo func(w *world) source.Batch
}

func meshWide() []meshChange {
	mesh := func(m *meshconfig.MeshConfig) func(*world) source.Batch {
		return func(*world) source.Batch { return source.Batch{Source: sourceName, Mesh: m} }
	}
	events := func(e func(w *world) edit) func(*world) source.Batch {
		return func(w *world) source.Batch { return source.Batch{Source: sourceName, Events: e(w).events()} }
	}
	all := func(w *world) edit { return edit{set: w.all} }
	policy := object("istio-system", "everybody", &networking.DestinationRule{Host: "*.mesh.example", TrafficPolicy: &networking.TrafficPolicy{
		ConnectionPool: &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: 77}},
	}})
	return []meshChange{
		{"connect-timeout", mesh(&meshconfig.MeshConfig{ConnectTimeout: durationpb.New(7 * time.Second)}), mesh(&meshconfig.MeshConfig{})},
		{"policy", events(func(*world) edit { return edit{set: []*api.Object{policy}} }), events(func(*world) edit { return edit{del: []api.Key{policy.Key}} })},
		{"export-to", mesh(&meshconfig.MeshConfig{DefaultServiceExportTo: []string{"."}}), mesh(&meshconfig.MeshConfig{})},
		{"deleted", events(func(w *world) (e edit) {
			for _, o := range w.all {
				e.del = append(e.del, o.Key)
			}
			return e
		}), events(all)},
	}
}

// meshWideChanges makes changes that concern everything, with 10,000 services and 20 classes.
func meshWideChanges(b *bench) error {
	b.release()
	w := b.world(b.sizes.large)
	p, err := newPlane(w)
	if err != nil {
		return err
	}
	defer p.close()
	list := make([]int, wide)
	for i := range list {
		list[i] = i
	}
	if err := p.join(list...); err != nil {
		return err
	}
	for _, m := range meshWide() {
		for range b.reps(3) {
			if err := b.calm(); err != nil {
				return err
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			batch, used := m.do(w), cpuTime()
			var longest time.Duration
			err := b.profiled("mesh-wide-10k-"+m.name, func() (err error) {
				longest, _, err = p.blocked(func() { p.loop.Apply(batch) })
				return err
			})
			if err != nil {
				return err
			}
			used = cpuTime() - used
			runtime.ReadMemStats(&after)
			b.record("mesh-wide-10k/"+m.name, millis(longest))
			b.record("mesh-wide-10k/"+m.name+"-cpu", millis(used))
			b.record("mesh-wide-10k/"+m.name+"-garbage", float64(after.TotalAlloc-before.TotalAlloc)/megabyte)
			if _, _, err := p.blocked(func() { p.loop.Apply(m.undo(w)) }); err != nil {
				return err
			}
		}
	}
	return nil
}
