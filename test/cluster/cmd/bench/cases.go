package main

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"

	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

const manyStreams = 500

// changes is how many changes of one kind are measured.
const changes = 200

func assignment(service int) string {
	return fmt.Sprintf("outbound|80||%s.%s.svc.cluster.local", serviceName(service), namespaceOf(service))
}

// endpointCase measures from the moment at which another watcher of the API server sees a change of a slice, until the last stream has
// the assignment. The same changes from a file are measured with the same streams, for comparison.
func endpointCase(ctx context.Context, w *world) error {
	if err := w.plane.ensure(ctx); err != nil {
		return err
	}
	f, err := newFleet(ctx, w.plane.grpc, manyStreams)
	if err != nil {
		return err
	}
	defer f.close()
	slices, err := watchSlices(ctx, w)
	if err != nil {
		return err
	}
	defer slices.Stop()
	cluster, err := measured(ctx, w.plane, f, func(i int) (time.Time, error) {
		if err := w.setReady(ctx, i/2, i%2 == 1); err != nil {
			return time.Time{}, err
		}
		return seen(ctx, slices, serviceName(i/2)+"-1")
	})
	if err != nil {
		return err
	}
	show("endpoint/share", "ms", 20, cluster.took...)
	show("endpoint/cpu", "CPU-ms per change", 0, cluster.cpu)
	file, err := fromFiles(ctx, w)
	if err != nil {
		return fmt.Errorf("the same from files: %w", err)
	}
	show("endpoint/cpu-from-file", "CPU-ms per change", 0, file.cpu)
	show("endpoint/cpu-to-file", "times", 1.3, cluster.cpu/file.cpu)
	return nil
}

// run is what some changes took.
type run struct {
	took []float64 // ms
	cpu  float64   // ms per change
}

// measured makes changes of the readiness of pods, two for each service, and waits for each until all streams have it. change returns
// when it was seen.
func measured(ctx context.Context, p *plane, f *fleet, change func(i int) (time.Time, error)) (run, error) {
	var r run
	before, err := p.cpu()
	if err != nil {
		return r, err
	}
	for i := range changes {
		arrived := f.expect(assignment(i / 2))
		at, err := change(i)
		if err != nil {
			return r, err
		}
		select {
		case <-arrived:
			r.took = append(r.took, millis(max(0, time.Since(at))))
		case <-time.After(patience):
			return r, fmt.Errorf("change %d did not arrive at %d of %d streams", i, f.waits.Load().left.Load(), len(f.streams))
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
	after, err := p.cpu()
	r.cpu = millis(after-before) / changes
	return r, err
}

func watchSlices(ctx context.Context, w *world) (watch.Interface, error) {
	now, err := w.client.DiscoveryV1().EndpointSlices("").List(ctx, meta.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	return w.client.DiscoveryV1().EndpointSlices("").Watch(ctx, meta.ListOptions{ResourceVersion: now.ResourceVersion})
}

// seen waits for an event of a slice and returns when it came.
func seen(ctx context.Context, slices watch.Interface, name string) (time.Time, error) {
	for {
		select {
		case e, ok := <-slices.ResultChan():
			if !ok {
				return time.Time{}, fmt.Errorf("the watch of slices ended")
			}
			if s, ok := e.Object.(*discovery.EndpointSlice); ok && s.Name == name {
				return time.Now(), nil
			}
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// statusCase patches statuses of pods in a field that nothing reads.
func statusCase(ctx context.Context, w *world) error {
	if err := w.plane.ensure(ctx); err != nil {
		return err
	}
	f, err := newFleet(ctx, w.plane.grpc, manyStreams)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.settle(ctx); err != nil {
		return err
	}
	const duration, perMinute = 30 * time.Second, 10_000
	before, err := w.plane.cpu()
	if err != nil {
		return err
	}
	cells, err := w.plane.Metric(ctx, "pilot_cells_run_total")
	if err != nil {
		return err
	}
	begin, pause := time.Now(), time.NewTicker(time.Minute/perMinute*makers)
	defer pause.Stop()
	rounds := int(duration / (time.Minute / perMinute) / makers)
	for i := range rounds {
		<-pause.C
		err := parallel(makers, func(k int) error {
			service := (i*makers + k) % smallWorld
			patch := fmt.Sprintf(`{"status":{"message":"probe %d"}}`, i)
			_, err := w.client.CoreV1().Pods(namespaceOf(service)).Patch(ctx, podName(service, 0, 0), types.MergePatchType, []byte(patch), meta.PatchOptions{}, "status")
			return err
		})
		if err != nil {
			return err
		}
	}
	took := time.Since(begin)
	after, err := w.plane.cpu()
	if err != nil {
		return err
	}
	now, err := w.plane.Metric(ctx, "pilot_cells_run_total")
	if err != nil {
		return err
	}
	show("status/rate", "statuses per minute", 0, float64(rounds*makers)/took.Minutes())
	show("status/cpu", "% of a core", 3, 100*float64(after-before)/float64(took))
	exactly("status/cells", "cells", 0, now-cells)
	return nil
}

// restartCase kills pilot-discovery under its streams and starts it again.
func restartCase(ctx context.Context, w *world) error {
	if err := w.plane.ensure(ctx); err != nil {
		return err
	}
	f, err := newFleet(ctx, w.plane.grpc, manyStreams)
	if err != nil {
		return err
	}
	defer f.close()
	w.plane.stop()
	before := f.received()
	took, err := w.plane.start(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := f.settle(ctx); err != nil {
		return err
	}
	show("restart/ready", "s from the start", 3, took.Seconds())
	show("restart/connected", "s until all have asked", 0, time.Since(begin).Seconds())
	select { // what should not come would come now
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
	}
	exactly("restart/sent", "resources to 500 streams", 0, float64(f.received()-before))
	return nil
}

// rolloutCase replaces pods one after the other: the slice without the old pod, the old pod removed, a new pod, the slice with it.
func rolloutCase(ctx context.Context, w *world) error {
	const pods, streams, within = 1000, 200, 2 * time.Minute
	if err := w.plane.ensure(ctx); err != nil {
		return err
	}
	f, err := newFleet(ctx, w.plane.grpc, streams)
	if err != nil {
		return err
	}
	defer f.close()
	slices, err := watchSlices(ctx, w)
	if err != nil {
		return err
	}
	defer slices.Stop()
	others, err := w.plane.sent(ctx, "cds", "lds", "rds")
	if err != nil {
		return err
	}
	var took []float64
	pace := time.NewTicker(within / pods)
	defer pace.Stop()
	begin := time.Now()
	for i := range pods {
		<-pace.C
		service, of := i/2, i%2
		one, err := w.replace(ctx, f, slices, service, of)
		if err != nil {
			return fmt.Errorf("pod %d: %w", i, err)
		}
		took = append(took, one...)
	}
	show("rollout/duration", "s", 0, time.Since(begin).Seconds())
	show("rollout/staleness", "ms", 50, took...)
	now, err := w.plane.sent(ctx, "cds", "lds", "rds")
	if err != nil {
		return err
	}
	exactly("rollout/other-types", "resources", 0, now-others)
	return nil
}

// replace replaces one pod of a service, and returns how long the streams waited for each of the two changes.
func (w *world) replace(ctx context.Context, f *fleet, slices watch.Interface, service, of int) (took []float64, err error) {
	with := sliceOf(service, 0, 0)
	if of == 1 {
		with = sliceOf(service, 1, 0)
	}
	without := with.DeepCopy()
	without.Endpoints = without.Endpoints[1-of : 2-of]
	next := sliceOf(service, 1, of)
	steps := []func() (*discovery.EndpointSlice, error){
		func() (*discovery.EndpointSlice, error) { return without, nil },
		func() (*discovery.EndpointSlice, error) {
			if err := w.removePod(ctx, service, of, 0); err != nil {
				return nil, err
			}
			return next, w.makePod(ctx, service, of, 1)
		},
	}
	for _, step := range steps {
		s, err := step()
		if err != nil {
			return nil, err
		}
		arrived := f.expect(assignment(service))
		if _, err := w.client.DiscoveryV1().EndpointSlices(namespaceOf(service)).Update(ctx, s, meta.UpdateOptions{}); err != nil {
			return nil, err
		}
		at, err := seen(ctx, slices, s.Name)
		if err != nil {
			return nil, err
		}
		select {
		case <-arrived:
			took = append(took, millis(max(0, time.Since(at))))
		case <-time.After(patience):
			return nil, fmt.Errorf("the streams did not get the endpoints of %s", s.Name)
		}
	}
	return took, nil
}

// listed matches the log line with the time when everything had been listed.
var listed = regexp.MustCompile(`time=(\S+) .*msg="the cluster has been listed"`)

// listCase starts pilot-discovery on the big world.
func listCase(ctx context.Context, w *world) error {
	w.plane.stop()
	small, err := w.sizeAtRest(ctx)
	if err != nil {
		return err
	}
	w.plane.stop()
	if err := w.grow(ctx, bigWorld); err != nil {
		return err
	}
	took, err := w.plane.start(ctx)
	if err != nil {
		return err
	}
	ready := time.Now()
	lines := listed.FindAllStringSubmatch(w.plane.process.Tail(), -1)
	if len(lines) == 0 {
		return fmt.Errorf("the log does not say when the cluster was listed:\n%s", w.plane.process.Tail())
	}
	at, err := time.Parse(time.RFC3339Nano, lines[len(lines)-1][1])
	if err != nil {
		return err
	}
	show("list/start-to-ready", "s", 0, took.Seconds())
	show("list/listed-to-ready", "s", 3, ready.Sub(at).Seconds())
	big, err := w.rest(ctx)
	if err != nil {
		return err
	}
	show("list/resident", "MB", 250, big)
	show("list/resident-small-world", "MB", 0, small)
	return nil
}

func (w *world) sizeAtRest(ctx context.Context) (float64, error) {
	if _, err := w.plane.start(ctx); err != nil {
		return 0, err
	}
	return w.rest(ctx)
}

// rest waits until the garbage of the start is gone, and returns the resident memory.
func (w *world) rest(ctx context.Context) (least float64, err error) {
	var once sync.Once
	for range 10 {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		now, err := w.plane.resident()
		if err != nil {
			return 0, err
		}
		once.Do(func() { least = now })
		least = min(least, now)
	}
	return least, nil
}
