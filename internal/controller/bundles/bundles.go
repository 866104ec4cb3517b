// Package bundles fetches the SPIFFE bundles that caCertificates of the mesh configuration names (spiffeBundleUrl), and keeps their roots fresh.
//
// Fetched roots become rows like the objects of a source, so nothing waits for a fetch. If a bundle cannot be fetched any more, or is not valid,
// its last good roots stay in force, and a problem says so. A Keeper keeps these roots, so that they are also in force after a restart.
//
// Invariants: An endpoint is authenticated by the authorities of the system, and never otherwise. Answers are bounded in size and time. No
// connection is made to addresses that package safedial refuses.
//
// Fetcher.Run owns everything and starts at most one goroutine per bundle at a time, for which it waits.
package bundles

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/run/retry"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state/policies"
)

// Name is the name of the source of roots.
const Name = "trust bundles"

const (
	// refresh is the time between two fetches of a bundle whose author asks for no other, and patience how long one may take: the same as with
	// Istio.
	refresh  = 30 * time.Minute
	patience = 10 * time.Second
	// firstPause is the time after a first failure until the next attempt. It doubles with each one, up to the time between two fetches, or
	// refresh if that is less.
	firstPause = time.Second
	// maxBundles bounds how many bundles are fetched.
	maxBundles = 32
)

// Client asks servers.
type Client interface {
	// Get returns the answer of a server, of limit bytes at most. Errors contain nothing of the answer.
	Get(ctx context.Context, from string, limit int64) ([]byte, error)
}

// Fetcher fetches bundles.
type Fetcher struct {
	Mesh loop.Inspector
	// Changed delivers after the mesh has changed, so that new bundles are fetched at once.
	Changed <-chan struct{}
	Sink    source.Sink
	Client  Client
	// Synced is closed once the mesh configuration is known.
	Synced <-chan struct{}
	// Keeper keeps the last good roots.
	Keeper Keeper
	// Ready is closed once the kept roots are in force, or could not be read for some time.
	Ready chan struct{}
	Log   *slog.Logger

	known    map[string]*entry
	memory   memory
	problems []api.Problem
	results  chan result
}

// entry is the state of a bundle.
type entry struct {
	roots    string // the last good ones, as PEM
	failure  string // of the last attempt
	fetching bool
	refused  bool // it is not fetched at all
	refresh  time.Duration
	pauses   *backoff.ExponentialBackOff
	next     time.Time
}

// result is the outcome of one fetch.
type result struct {
	from string
	answer
	err error
}

// Run fetches bundles until ctx ends.
func (f *Fetcher) Run(ctx context.Context) {
	select {
	case <-f.Synced:
	case <-ctx.Done():
		return
	}
	f.known, f.results, f.memory.pauses = map[string]*entry{}, make(chan result, maxBundles), retry.Pauses(firstPause, refresh)
	var fetches sync.WaitGroup
	defer fetches.Wait()
	begun, ready := time.Now(), false
	f.look(ctx)
	for {
		wait := f.keep(ctx)
		if !ready && (f.memory.read || len(f.known) == 0 || time.Since(begun) > patience) {
			f.look(ctx) // after the commit of the kept roots
			close(f.Ready)
			ready = true
		}
		due := time.NewTimer(min(wait, f.start(ctx, &fetches)))
		select {
		case <-ctx.Done():
			due.Stop()
			return
		case r := <-f.results:
			f.finish(r)
		case <-f.Changed:
			f.look(ctx)
		case <-due.C:
		}
		due.Stop()
	}
}

// look follows the bundles that the mesh configuration names.
func (f *Fetcher) look(ctx context.Context) {
	wanted, err := loop.Look(ctx, f.Mesh, func(v *loop.View) (urls []string) {
		for _, data := range v.Tables.PresentCACertificates().GetCaCertificates() {
			if from := data.GetSpiffeBundleUrl(); from != "" && !slices.Contains(urls, from) {
				urls = append(urls, from)
			}
		}
		return urls
	})
	if err == nil {
		f.follow(wanted)
	}
}

// follow forgets bundles that are not wanted any more, and notes new ones, as far as there is room.
func (f *Fetcher) follow(wanted []string) {
	var events []source.Event
	for from, e := range f.known {
		if e.refused || !slices.Contains(wanted, from) {
			delete(f.known, from)
			if e.roots != "" {
				events = append(events, policies.BundleEvent(from, ""))
			}
		}
	}
	for _, from := range wanted {
		if f.known[from] != nil {
			continue
		}
		e := &entry{refresh: refresh, pauses: retry.Pauses(firstPause, refresh)}
		switch u, err := url.Parse(from); {
		case err != nil || !strings.EqualFold(u.Scheme, "https") || u.Host == "":
			e.failure, e.refused = "its address is not one of HTTPS, such as https://spire.example.com/bundle", true
		case len(f.known) >= maxBundles:
			e.failure, e.refused = fmt.Sprintf("there are more than %d bundles", maxBundles), true
		}
		f.known[from] = e
	}
	f.apply(events)
}

// start starts the fetches that are due, and returns the time until the next one is due.
func (f *Fetcher) start(ctx context.Context, fetches *sync.WaitGroup) time.Duration {
	now, wait := time.Now(), time.Hour
	for from, e := range f.known {
		switch {
		case e.fetching || e.refused:
		case now.Before(e.next):
			wait = min(wait, e.next.Sub(now))
		default:
			e.fetching = true
			fetches.Go(func() {
				r := f.fetch(ctx, from)
				select {
				case f.results <- r:
				case <-ctx.Done():
				}
			})
		}
	}
	return wait
}

// fetch fetches one bundle.
func (f *Fetcher) fetch(ctx context.Context, from string) result {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := f.Client.Get(ctx, from, maxBundle)
	if err != nil {
		return result{from: from, err: err}
	}
	a, err := parse(body)
	return result{from, a, err}
}

// finish takes in a result.
func (f *Fetcher) finish(r result) {
	e := f.known[r.from]
	if e == nil {
		return // not wanted any more
	}
	e.fetching = false
	if r.err != nil {
		e.next = time.Now().Add(min(e.pauses.NextBackOff(), e.refresh))
		if e.failure != r.err.Error() {
			e.failure = r.err.Error()
			f.Log.Warn("cannot fetch a SPIFFE bundle", "from", shown(r.from), "reason", e.failure, "roots_kept", e.roots != "")
			f.apply(nil)
		}
		return
	}
	e.pauses.Reset()
	e.refresh = cmp.Or(r.refresh, refresh)
	e.next = time.Now().Add(e.refresh)
	changed := e.roots != r.roots
	e.roots, e.failure = r.roots, ""
	var events []source.Event
	if changed {
		f.Log.Info("fetched the roots of a SPIFFE bundle", "from", shown(r.from), "roots", strings.Count(r.roots, "-----BEGIN "))
		events = append(events, policies.BundleEvent(r.from, r.roots))
	}
	f.apply(events)
}

// apply passes events on, and changes of the problems.
func (f *Fetcher) apply(events []source.Event) {
	var problems []api.Problem
	for _, from := range slices.Sorted(maps.Keys(f.known)) {
		if e := f.known[from]; e.failure != "" {
			problems = append(problems, problem(from, e))
		}
	}
	problems = append(problems, f.memory.problems()...)
	b := source.Batch{Source: Name, Events: events, Problems: source.ProblemEvents(f.problems, problems), Synced: true}
	f.problems = problems
	if len(b.Events)+len(b.Problems) > 0 {
		f.Sink.Apply(b)
	}
}

// problem is the problem of a bundle that cannot be fetched.
func problem(from string, e *entry) api.Problem {
	if e.roots != "" {
		return api.Problem{Severity: api.Warning, Code: "bundle-stale", Reason: fmt.Sprintf(
			"caCertificates of the mesh configuration: the SPIFFE bundle %s cannot be fetched any more, and its last good roots stay in force: %s", shown(from), e.failure)}
	}
	return api.Problem{Severity: api.Error, Code: "bundle-unknown", Reason: fmt.Sprintf(
		"caCertificates of the mesh configuration: the SPIFFE bundle %s cannot be fetched, so its roots are not trusted: %s", shown(from), e.failure)}
}

// shown is an address without credentials.
func shown(from string) string {
	u, err := url.Parse(from)
	if err != nil {
		return "(an address that cannot be read)"
	}
	u.RawQuery, u.Fragment = "", ""
	return u.Redacted()
}
