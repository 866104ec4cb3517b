package main

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"slices"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
)

// The churn of a fleet: so many endpoints change each second, each of another service, for so long.
const (
	fleetChurnRate = 20
	fleetChurn     = 10 * time.Second
)

// planes are control planes that read the same objects. They share nothing.
type planes []*plane

func (r planes) addrs() (list []string) {
	for _, p := range r {
		list = append(list, p.addr)
	}
	return list
}

func (r planes) apply(e edit) {
	for _, p := range r {
		p.apply(e)
	}
}

func (r planes) close() {
	for _, p := range r {
		p.close()
	}
}

// fleetOfTwo measures two replicas in this process, each with half of the proxies: what a change costs, the upgrade of one replica after the other, many
// changes, and proxies that move to another class.
func fleetOfTwo(b *bench) (err error) {
	b.release()
	w := b.world(cmp.Or(b.fleet.services, fleetServices))
	r := make(planes, 0, 2)
	defer func() { r.close() }()
	for range 2 {
		p, err := serve(w)
		if err != nil {
			return err
		}
		r = append(r, p)
	}
	begin := time.Now()
	clients, err := b.apart(apartTask{Fleet: &fleetTask{Addrs: r.addrs(), Streams: b.fleetProxies(), Classes: fleetClasses}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clients.end()) }()
	if err := clients.expect(saysReady); err != nil {
		return err
	}
	b.record("fleet-two/cold", time.Since(begin).Seconds())
	// Clients that return list the versions of their first answers, so the upgrade goes before the changes of many resources.
	for _, step := range []func(planes, *world, *process) error{b.twoEdits, b.twoUpgrade, b.twoChurn, b.twoMove} {
		if err := step(r, w, clients); err != nil {
			return err
		}
	}
	return nil
}

// twoEdits changes endpoints one after the other.
func (b *bench) twoEdits(r planes, w *world, clients *process) error {
	var took []float64
	for n := range b.reps(10) {
		last, resent, err := clients.order(fleetOrder{Assignments: 1}, func() { r.apply(seenByAll(w, 1+n)) })
		if err != nil {
			return err
		}
		b.record("fleet-two/extra", float64(resent))
		took = append(took, last.Seconds())
	}
	b.record("fleet-two/endpoint-last", quantile(took, 1))
	memory, err := settledMemory()
	b.record("fleet-two/memory", memory/1024)
	return err
}

// twoChurn changes many endpoints at a rate. The figure is how long after the last change the last proxy has all of them.
func (b *bench) twoChurn(r planes, w *world, clients *process) error {
	changes := int(fleetChurn.Seconds()) * fleetChurnRate
	if b.quick {
		changes /= 5
	}
	var turn []int // services that all namespaces without a Sidecar see, with one cluster and endpoints of their own
	for i := 0; len(turn) < changes && i < w.services; i++ {
		if !selected(i) && !ruled(i) && !private(i) {
			turn = append(turn, i)
		}
	}
	var last time.Duration
	began := cpuTime()
	order := fleetOrder{Assignments: len(turn), Namespaces: [2]int{0, firstScoped}}
	took, extra, err := clients.order(order, func() {
		begin := time.Now()
		for n, i := range turn {
			if b.pause(time.Until(begin.Add(time.Duration(n)*time.Second/fleetChurnRate))) != nil {
				return // the bench ends
			}
			r.apply(edit{set: []*api.Object{w.service(i, 50)}})
		}
		last = time.Since(begin)
	})
	if err != nil {
		return err
	}
	_ = extra // assignments that namespaces with a Sidecar or without one beyond the first ones got
	b.record("fleet-two/churn-last", (took - last).Seconds())
	b.record("fleet-two/churn-cores", (cpuTime()-began).Seconds()/took.Seconds())
	return nil
}

// twoMove gives ten namespaces, a tenth of the proxies, a Sidecar each, which moves them to another class: requests to undeclared hosts are refused there.
func (b *bench) twoMove(r planes, _ *world, clients *process) error {
	const from, to = 50, 60
	var e edit
	for n := from; n < to; n++ {
		e.set = append(e.set, object(namespace(n), "strict", &networking.Sidecar{
			Egress:                []*networking.IstioEgressListener{{Hosts: []string{"*/*"}}},
			OutboundTrafficPolicy: &networking.OutboundTrafficPolicy{Mode: networking.OutboundTrafficPolicy_REGISTRY_ONLY},
		}))
	}
	took, sent, err := clients.order(fleetOrder{Namespaces: [2]int{from, to}}, func() { r.apply(e) })
	if err != nil {
		return err
	}
	moved := b.fleetProxies() * (to - from) / fleetClasses
	b.record("fleet-two/move-last", took.Seconds())
	b.record("fleet-two/move-resources", float64(sent)/float64(moved))
	return nil
}

// twoUpgrade replaces one replica after the other by a fresh one. An edit shows when the last proxy is served again.
func (b *bench) twoUpgrade(r planes, w *world, clients *process) error {
	for i, old := range r {
		fresh, err := serve(w)
		if err != nil {
			return err
		}
		fresh.apply(edit{set: slices.Collect(maps.Values(old.present))})
		if _, err := fresh.takeCommits(); err != nil { // it has read all of it
			return err
		}
		r[i] = fresh
		took, resent, err := clients.order(fleetOrder{Replaced: old.addr, By: fresh.addr, Assignments: 1}, func() { r.apply(seenByAll(w, 60+i)) })
		old.close()
		if err != nil {
			return err
		}
		b.record("fleet-two/rolling", took.Seconds())
		b.record("fleet-two/rolling-resent", float64(resent))
	}
	memory, err := residentMemory(os.Getpid())
	b.record("fleet-two/memory-rolling", memory/1024)
	return err
}
