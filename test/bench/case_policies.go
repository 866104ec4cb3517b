package main

import (
	"fmt"
	"time"

	security "istio.io/api/security/v1beta1"
	typev1 "istio.io/api/type/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
)

// addPolicies adds an AuthorizationPolicy to each namespace, which the proxies in it enforce, and one for the workloads of each tenth
// service.
func (w *world) addPolicies() {
	policy := func(namespace, name string, selector *typev1.WorkloadSelector) *api.Object {
		return object(namespace, name, &security.AuthorizationPolicy{
			Selector: selector,
			Rules: []*security.Rule{{
				From: []*security.Rule_From{{Source: &security.Source{Namespaces: []string{namespace, "monitoring"}}}},
				To:   []*security.Rule_To{{Operation: &security.Operation{Methods: []string{"GET", "POST"}, Paths: []string{"/api/*"}}}},
			}},
		})
	}
	for n := range namespaces {
		w.all = append(w.all, policy(namespace(n), "all", nil))
	}
	for i := 0; i < w.services; i += 10 {
		app := fmt.Sprintf("svc-%d", i)
		w.all = append(w.all, policy(namespace(i%namespaces), app, &typev1.WorkloadSelector{MatchLabels: map[string]string{"app": app}}))
	}
}

// policed compares the cost of changes in a mesh with policies and in one without. Both exist at the same time.
func policed(b *bench) error {
	b.release()
	plain, with := newWorld(b.sizes.small, false), newWorld(b.sizes.small, false)
	with.addPolicies()
	var meshes []*mesh
	for i, w := range []*world{plain, with} {
		m, err := b.beside(w, i*b.sizes.streams)
		if m != nil {
			defer m.plane.close()
		}
		if err != nil {
			return err
		}
		defer m.fleet.close()
		meshes = append(meshes, m)
	}
	return b.ratios("policies-1k", meshes)
}

// ratios records how much more changes cost in the second one of two meshes. The passes take turns, so that neither mesh has the quieter machine.
func (b *bench) ratios(name string, meshes []*mesh) error {
	for _, c := range []struct {
		figure string
		cost   func(m *mesh) (time.Duration, error)
	}{
		{"endpoint", b.costOf(endpointChange(), b.reps(60))},
		{"virtualservice", b.costOf(routeChange(), 3)},
		{"churn", b.costOfChurn(max(10, int(b.sizes.churn.Seconds()*churnRate/6)))},
	} {
		for _, m := range meshes { // the first pass grows buffers
			if _, err := c.cost(m); err != nil {
				return err
			}
		}
		for range b.reps(9) {
			var cost [2]time.Duration
			for i, m := range meshes {
				var err error
				if cost[i], err = c.cost(m); err != nil {
					return err
				}
			}
			b.record(name+"/"+c.figure+"-ratio", float64(cost[1])/float64(cost[0]))
		}
	}
	return nil
}

// beside starts a mesh that stands beside others. Its streams are numbered from first on.
func (b *bench) beside(w *world, first int) (*mesh, error) {
	size := b.smallSize()
	size.first = first
	m := &mesh{world: w, services: w.services, size: size, edits: make(map[string]int)}
	var err error
	if m.plane, err = serve(w); err != nil {
		return nil, err
	}
	conns, err := dial(m.plane.addr, 1)
	if err != nil {
		return m, err
	}
	defer hangUp(conns)
	scripts, err := learnAll(b.ctx, conns[0], 0, wide)
	if err != nil {
		return m, err
	}
	if m.fleet, err = connect(m.plane.addr, size, scripts); err != nil {
		return m, err
	}
	return m, m.fleet.wait(m.fleet.settled, "the first answers")
}

func (b *bench) costOf(c change, n int) func(*mesh) (time.Duration, error) {
	return func(m *mesh) (time.Duration, error) {
		if err := m.quiet(b); err != nil {
			return 0, err
		}
		p, err := m.changes(b, m.fleet, c, n)
		if err != nil {
			return 0, err
		}
		return p.cpu, nil
	}
}

// costOfChurn is the CPU time of changes that come 10 ms after each other and are not waited for.
func (b *bench) costOfChurn(changes int) func(*mesh) (time.Duration, error) {
	var turn []int
	for i := range b.sizes.small {
		if !selected(i) && !ruled(i) && !private(i) {
			turn = append(turn, i)
		}
	}
	return func(m *mesh) (time.Duration, error) {
		if err := m.quiet(b); err != nil {
			return 0, err
		}
		used := cpuTime()
		err := m.churn(b, nil, turn, changes)
		return cpuTime() - used, err
	}
}
