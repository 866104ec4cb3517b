package main

import (
	"fmt"
	"runtime"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
)

// manyEndpoints changes one address of a service with ten thousand endpoints. There are no streams: what each would be sent
// is a buffer that all share.
func manyEndpoints(b *bench) error {
	w := b.world(b.sizes.small)
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
	objects := []*api.Object{crowded(10*b.sizes.small, 1), crowded(10*b.sizes.small, 2)}
	p.apply(edit{set: objects[:1]})
	if _, err := p.takeCommits(); err != nil {
		return err
	}
	if err := b.calm(); err != nil {
		return err
	}
	for i := range b.reps(24) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin := cpuTime()
		p.apply(edit{set: objects[(i+1)%2 : (i+1)%2+1]})
		commits, err := p.takeCommits()
		if err != nil {
			return err
		}
		cpu := cpuTime() - begin
		runtime.ReadMemStats(&after)
		if len(commits) != 1 {
			return fmt.Errorf("change %d made %d commits, want one", i, len(commits))
		}
		b.record("endpoints-10k/cpu", millis(cpu))
		b.record("endpoints-10k/ready", millis(commits[0].Duration))
		b.record("endpoints-10k/cells", float64(sum(commits[0].Cells)))
		b.record("endpoints-10k/garbage", float64(after.TotalAlloc-before.TotalAlloc)/1e6)
	}
	return nil
}

// crowded is a service with n endpoints; the address of one depends on the generation.
func crowded(n, generation int) *api.Object {
	spec := &networking.ServiceEntry{
		Hosts:      []string{"crowded.example"},
		Ports:      []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP", TargetPort: 8080}},
		Location:   networking.ServiceEntry_MESH_INTERNAL,
		Resolution: networking.ServiceEntry_STATIC,
	}
	for i := range n {
		spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{
			Address: fmt.Sprintf("10.%d.%d.%d", 128+i>>16, i>>8&255, i&255),
			Labels:  map[string]string{"app": "crowded", "version": fmt.Sprintf("v%d", i%2)},
		})
	}
	spec.Endpoints[n/2].Address = fmt.Sprintf("10.127.0.%d", generation)
	return object(namespace(0), "crowded", spec)
}
