package consul

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pilotmesh/pilot/internal/source/registries"
)

// More services than maxWatches, on more than maxNodes nodes, are followed like this: one blocking query notices that some check has changed, the list of
// all checks names the services, and these are read at once. The services that changed last have blocking queries of their own, because a service that changes, changes
// often. A change of an instance without a change of its checks shows in the index of the catalog only. All services are read after it, in the background.

// checksPath lists the checks of all services, and noChecks lets the server leave all of them out. The index grows when any check changes.
const (
	checksPath = "/v1/health/state/any"
	noChecks   = `Node == ""`
)

const (
	// hotWatches is how many services have blocking queries of their own.
	hotWatches = 100
	// sweepers is how many services are read at once in the background, and portion how many are passed on together.
	sweepers = 8
	portion  = 500
	// rest is how long the background rests after it has read all services: so many times the time that it needed.
	rest = 2
)

// checks are checksums of all checks: of services by their names, and of nodes by theirs.
type checks struct {
	index           uint64
	services, nodes map[string]uint64
}

// checks reads all checks.
func (r *reader) checks(ctx context.Context) (checks, error) {
	a, err := r.get(ctx, checksPath, 0, 0, false)
	if err != nil {
		return checks{}, err
	}
	c, err := decodeChecks(a.body)
	c.index = a.index
	return c, err
}

func decodeChecks(body []byte) (checks, error) {
	c := checks{services: map[string]uint64{}, nodes: map[string]uint64{}}
	var node, id, service, index []byte
	s := scan(body)
	member := func(name []byte) (err error) {
		switch string(name) {
		case `"Node"`:
			node, err = s.text(node)
		case `"CheckID"`:
			id, err = s.text(id)
		case `"ServiceName"`:
			service, err = s.text(service)
		case `"ModifyIndex"`:
			index, err = s.raw(index)
		default:
			err = s.SkipValue()
		}
		return err
	}
	err := s.list(func() error {
		node, id, service, index = node[:0], id[:0], service[:0], index[:0]
		if err := s.object(member); err != nil {
			return err
		}
		of, key := c.services, service
		if len(service) == 0 {
			of, key = c.nodes, node
		}
		of[string(key)] += hash(node, id, index) // a sum does not depend on the order
		return nil
	})
	if err != nil {
		return checks{}, fmt.Errorf("%s: %w", checksPath, err)
	}
	return c, nil
}

// differences returns the keys whose values differ, in order.
func differences(was, is map[string]uint64) (keys []string) {
	for k, n := range is {
		if old, ok := was[k]; !ok || old != n {
			keys = append(keys, k)
		}
	}
	for k := range was {
		if _, ok := is[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// prepare notes the state of many services before these are read, so that a change during the reading is noticed. start starts to follow the changes.
func (f *following) prepare(ctx context.Context) (start func(), err error) {
	if !f.bulk {
		return func() {}, nil
	}
	all, states, few, err := f.nodeStates(ctx)
	if err != nil {
		return nil, err
	}
	if few {
		return func() { f.running.Go(func() { f.followNodes(ctx, all, states) }) }, nil
	}
	seen, err := f.checks(ctx)
	f.sweeping = true
	return func() {
		f.running.Go(func() { f.followChecks(ctx, seen) })
		f.running.Go(func() { f.sweep(ctx) })
	}, err
}

// followChecks reads the services whose checks change.
func (f *following) followChecks(ctx context.Context, seen checks) {
	for {
		a, err := f.follow(ctx, checksPath, seen.index, f.entry.ConsulWait)
		if err == nil && a.index == seen.index {
			continue
		}
		began := time.Now()
		var is checks
		var names []string
		var read []update
		if err == nil {
			is, err = f.checks(ctx)
		}
		if err == nil {
			names, err = f.touched(ctx, seen, is)
		}
		if err == nil {
			read, err = f.readAll(ctx, names, parallel)
		}
		if err != nil {
			f.end(ctx, err)
			return
		}
		seen = is
		// The list is long. While checks change all the time, the server makes one half of the time.
		if !f.send(ctx, read) || !registries.Pause(ctx, time.Since(began)) {
			return
		}
	}
}

// heat gives a service that has changed a blocking query of its own, in the place of the service that has not changed for longest.
func (f *following) heat(ctx context.Context, u update) {
	if i := slices.Index(f.hot, u.name); i >= 0 {
		f.hot = slices.Delete(f.hot, i, i+1)
	}
	f.hot = append(f.hot, u.name)
	if f.watched[u.name] == nil {
		f.watch(ctx, u)
	}
	if oldest := f.hot[0]; len(f.hot) > hotWatches {
		f.hot = f.hot[1:]
		if w := f.watched[oldest]; w != nil {
			w.stop()
			delete(f.watched, oldest)
		}
	}
}

// touched returns the names of the services whose checks differ, and of the services on nodes whose checks differ.
func (f *following) touched(ctx context.Context, was, is checks) ([]string, error) {
	names := differences(was.services, is.services)
	for _, node := range differences(was.nodes, is.nodes) {
		on, err := f.nodeState(ctx, aspects[1], node)
		if err != nil {
			return nil, err
		}
		names = slices.AppendSeq(names, maps.Keys(on.marks))
	}
	return f.followed(names), nil
}

// send passes on updates. It reports false if the session has ended.
func (f *following) send(ctx context.Context, list []update) bool {
	for i := range list {
		if list[i].filtered {
			f.end(ctx, errShown)
			return false
		}
	}
	if len(list) == 0 {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case f.updates <- list:
		return true
	}
}

// end ends the session with an error, unless it has ended.
func (f *following) end(ctx context.Context, err error) {
	if ctx.Err() == nil {
		f.fail(err)
	}
}

// wantSweep asks for all services to be read in the background.
func (f *following) wantSweep(list []string) {
	select {
	case <-f.sweeps: // an older wish
	default:
	}
	f.sweeps <- list
}

// sweep reads all services when that is asked for, and rests in between, so that a Consul in which something always changes is not read all the time.
func (f *following) sweep(ctx context.Context) {
	for {
		var list []string
		select {
		case <-ctx.Done():
			return
		case list = <-f.sweeps:
		}
		began := time.Now()
		for some := range slices.Chunk(list, portion) {
			read, err := f.readAll(ctx, some, sweepers)
			if err != nil {
				f.end(ctx, err)
				return
			}
			if !f.send(ctx, slices.DeleteFunc(read, func(u update) bool { return f.same(u.name, u.sum) })) {
				return
			}
		}
		if !registries.Pause(ctx, rest*time.Since(began)) {
			return
		}
	}
}
