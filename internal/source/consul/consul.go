// Package consul reads the services of Consul: their names from the catalog, and their instances with their health, by blocking queries.
//
// Invariants:
//   - After an error, or when an index falls, all is listed again from the beginning. A server without a leader is not read.
//   - A list that the rights of the token have shortened is reported as incomplete.
//   - There are at most maxWatches blocking queries for services. If there are more services, nodes.go finds out which of them have changed, or bulk.go
//     if there are many nodes, too.
//
// Goroutines: one per blocking query, and one that reads all services again if there are many nodes. Run waits for them.
package consul

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/internal/source/registries"
)

// The limits of queries.
const (
	// maxWatches bounds the blocking queries: a server allows 200 connections of a client unless configured otherwise.
	maxWatches = 150
	// fewWatches is the number of services below which there are blocking queries for services again.
	fewWatches = 100
	// parallel is how many services are read at once.
	parallel = 32
	// catalogWait is the longest wait of the query for names. A server that lost its data answers a query with a higher index only after it.
	catalogWait = 10 * time.Second
	// patience is how long an answer may take beyond its wait.
	patience = 10 * time.Second
)

// errFell is why all is listed again: the server has other data than before.
var errFell = errors.New("the index of the server fell: it has lost its data, or another server answers")

// errShown is why all is listed again: the rights of the token have changed.
var errShown = errors.New("the server shows other services than before without a change of them: the rights of the token have changed")

// errMode is why all is listed again: the number of services has crossed maxWatches or fewWatches. It is no loss of sight: all changes were passed on.
var errMode = errors.New("the number of services requires another way to follow them")

// reader reads one Consul.
type reader struct {
	entry  registries.Entry
	client *registries.Client
	log    *slog.Logger
}

// New returns a reader of a Consul. It is a registries.Factory.
func New(e registries.Entry, a registries.Access, log *slog.Logger) (registries.Reader, error) {
	header := http.Header{}
	if token := a.Auth[registries.ConsulToken]; token != "" {
		header.Set("X-Consul-Token", token)
	}
	return &reader{entry: e, client: registries.NewClient(e, a, header, maxWatches+parallel), log: log}, nil
}

// Run implements registries.Reader.
func (r *reader) Run(ctx context.Context, to registries.Listener) {
	defer r.client.Close()
	pause := registries.NewBackoff()
	for {
		err := r.session(ctx, to, pause)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errFell), errors.Is(err, errShown), errors.Is(err, errMode):
			r.log.Info("consul is listed again", "reason", err)
		case registries.IsRefusal(err):
			to.Refused(err)
		default:
			to.Lost(err)
		}
		if !pause.Wait(ctx) {
			return
		}
	}
}

// answer is an answer to a query, with its index.
type answer struct {
	body     []byte
	index    uint64
	filtered bool
	streamed bool // by the streaming backend, which names no leader and does not say that it has filtered its answer
}

// get sends a query. With an index it blocks until something changes, for at most wait.
func (r *reader) get(ctx context.Context, path string, index uint64, wait time.Duration, stale bool) (answer, error) {
	q := url.Values{}
	for key, value := range map[string]string{"dc": r.entry.ConsulDatacenter, "ns": r.entry.ConsulNamespace, "partition": r.entry.ConsulPartition} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if stale {
		q.Set("stale", "")
	}
	timeout := patience
	if index > 0 {
		wait = min(wait, r.entry.ConsulWait)
		q.Set("index", strconv.FormatUint(index, 10))
		q.Set("wait", strconv.FormatInt(wait.Milliseconds(), 10)+"ms")
		timeout += wait + wait/8 // the server adds up to a sixteenth
	}
	switch {
	case path == checksPath && index > 0: // only its end is of interest
		q.Set("filter", noChecks)
	case r.entry.ConsulServiceTag != "" && path != catalog:
		q.Set("tag", r.entry.ConsulServiceTag)
	}
	a, err := r.client.Get(ctx, timeout, path, q, nil)
	if err != nil {
		return answer{}, err
	}
	streamed := a.Header.Get("X-Consul-Query-Backend") == "streaming"
	if a.Header.Get("X-Consul-KnownLeader") == "false" && !streamed {
		return answer{}, fmt.Errorf("%s: the server knows no leader, so that its answer may be old", path)
	}
	out := answer{body: a.Body, streamed: streamed, filtered: a.Header.Get("X-Consul-Results-Filtered-By-Acls") == "true"}
	out.index, _ = strconv.ParseUint(a.Header.Get("X-Consul-Index"), 10, 64)
	return out, nil
}

// follow sends a query that blocks until the index grows. An answer with a lower index than before is not used: if the leader has a lower one,
// too, the server has lost its data.
func (r *reader) follow(ctx context.Context, path string, index uint64, wait time.Duration) (answer, error) {
	a, err := r.get(ctx, path, index, wait, true)
	if err != nil || a.index >= index && a.index > 0 {
		return a, err
	}
	if a, err = r.get(ctx, path, 0, 0, false); err == nil && (a.index < index || a.index == 0) {
		err = errFell
	}
	return a, err
}

const catalog = "/v1/catalog/services"

func healthPath(name string) string { return "/v1/health/service/" + url.PathEscape(name) }

// session lists all and follows the changes, until an error.
func (r *reader) session(ctx context.Context, to registries.Listener, pause *registries.Backoff) error {
	ctx, cancel := context.WithCancel(ctx)
	first, err := r.get(ctx, catalog, 0, 0, false)
	var known names
	if err == nil {
		known, err = r.names(first)
	}
	if err != nil {
		cancel()
		return err
	}
	f := newFollowing(r, to, cancel)
	defer f.running.Wait()
	defer cancel()
	f.bulk = len(known.list) > maxWatches
	start, err := f.prepare(ctx)
	if err != nil {
		return err
	}
	read, err := f.readAll(ctx, known.list, parallel)
	if err != nil {
		return err
	}
	all := registries.Services{}
	for _, u := range read {
		all[u.name] = u.service
		known.unsure = known.unsure || u.filtered
		f.pass(u)
	}
	to.List(all, !known.unsure)
	pause.Reset()
	f.known = known
	if !f.bulk {
		for _, u := range read {
			f.watch(ctx, u)
		}
	}
	f.running.Go(func() { f.followCatalog(ctx, known) })
	start()
	return f.serve(ctx)
}

// update is a new version of a service.
type update struct {
	name     string
	service  *registries.Service
	index    uint64
	filtered bool
	// none is set if the server shows no instance. The catalog does not list a service without instances, so that it decides: rights that got lost look the same.
	none bool
	sum  uint64 // of the answer
}

// watch is the blocking query for one service.
type watch struct{ stop context.CancelFunc }

// following follows the changes after a list.
type following struct {
	*reader
	to      registries.Listener
	cancel  context.CancelFunc
	running sync.WaitGroup
	updates chan []update
	catalog chan names
	failed  chan error
	sweeps  chan []string // names of services to read again

	mu     sync.Mutex
	passed map[string]version // the last answer that was passed on, by service

	// The rest belongs to the goroutine of serve.

	known   names
	watched map[string]*watch
	hot     []string // the watched ones if there are many services, the one that changed last at the end

	// bulk is set if there are more than maxWatches services, and sweeping if all of them are read again after a change of the catalog.
	bulk, sweeping bool
}

func newFollowing(r *reader, to registries.Listener, cancel context.CancelFunc) *following {
	return &following{
		reader: r, to: to, cancel: cancel, updates: make(chan []update), failed: make(chan error, 1), catalog: make(chan names), sweeps: make(chan []string, 1),
		watched: map[string]*watch{}, passed: map[string]version{},
	}
}

// version identifies an answer about a service.
type version struct{ index, sum uint64 }

// pass notes that an update is passed on. It reports false if a newer one was before.
func (f *following) pass(u update) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if u.index < f.passed[u.name].index {
		return false
	}
	f.passed[u.name] = version{u.index, u.sum}
	return true
}

// same reports whether an answer is the one that was passed on.
func (f *following) same(name string, sum uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, ok := f.passed[name]
	return ok && was.sum == sum
}

// forget notes that a service is gone.
func (f *following) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.passed, name)
}

// fail ends the session.
func (f *following) fail(err error) {
	select {
	case f.failed <- err:
	default:
	}
}

// serve passes on changes until an error.
func (f *following) serve(ctx context.Context) error {
	for {
		some := registries.Services{}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-f.failed:
			return err
		case is := <-f.catalog:
			if err := f.changeNames(ctx, is, some); err != nil {
				return err
			}
		case list := <-f.updates:
			f.take(ctx, list, some)
		}
		for more := true; more; { // updates that wait already are one change
			select {
			case list := <-f.updates:
				f.take(ctx, list, some)
			default:
				more = false
			}
		}
		if len(some) > 0 {
			f.to.Change(some)
		}
	}
}

// take adds updates to a change.
func (f *following) take(ctx context.Context, list []update, some registries.Services) {
	for _, u := range list {
		_, listed := slices.BinarySearch(f.known.list, u.name)
		if listed && !u.none && f.pass(u) {
			some[u.name] = u.service
			if f.bulk && len(list) <= hotWatches {
				f.heat(ctx, u)
			}
		}
	}
}

// readAll reads services, so many at a time.
func (f *following) readAll(ctx context.Context, list []string, workers int) ([]update, error) {
	out, errs := make([]update, len(list)), make([]error, min(workers, len(list)))
	next := make(chan int, len(list))
	for i := range list {
		next <- i
	}
	close(next)
	var running sync.WaitGroup
	for worker := range errs {
		running.Go(func() {
			for i := range next {
				if errs[worker] == nil {
					out[i], errs[worker] = f.read(ctx, list[i])
				}
			}
		})
	}
	running.Wait()
	return out, cmp.Or(errs...)
}

func (f *following) read(ctx context.Context, name string) (update, error) {
	a, err := f.get(ctx, healthPath(name), 0, 0, false)
	if err != nil {
		return update{}, err
	}
	return f.decode(name, a)
}

func (f *following) decode(name string, a answer) (update, error) {
	s, err := decode(name, a.body, f.entry.ConsulOnlyPassing)
	none := f.entry.ConsulServiceTag == "" && slices.Contains([]string{"[]", "null"}, string(bytes.TrimSpace(a.body)))
	return update{name: name, service: s, index: a.index, filtered: a.filtered, none: none, sum: hash(a.body)}, err
}

// watch starts the blocking query for a service.
func (f *following) watch(ctx context.Context, from update) {
	ctx, stop := context.WithCancel(ctx)
	f.watched[from.name] = &watch{stop}
	f.running.Go(func() {
		last := from.service
		for index := from.index; ; {
			a, err := f.follow(ctx, healthPath(from.name), index, f.entry.ConsulWait)
			var u update
			if err == nil {
				u, err = f.decode(from.name, a)
			}
			if err == nil && a.streamed && len(gone(last, u.service)) > 0 {
				u, err = f.read(ctx, from.name) // which says whether rights hide an instance
			}
			if err == nil && u.filtered {
				err = errShown
			}
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				f.fail(err)
				return
			case a.index == index:
				continue
			}
			index, last = a.index, u.service
			select {
			case <-ctx.Done():
				return
			case f.updates <- []update{u}:
			}
		}
	})
}

// gone returns the IDs of instances that are in one version of a service and not in another.
func gone(was, is *registries.Service) (ids []string) {
	for _, in := range was.Instances {
		if !slices.ContainsFunc(is.Instances, func(o registries.Instance) bool { return o.ID == in.ID }) {
			ids = append(ids, in.ID)
		}
	}
	return ids
}
