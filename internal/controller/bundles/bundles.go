// Package bundles fetches the SPIFFE bundles that caCertificates of the mesh configuration names (spiffeBundleUrl), and keeps their roots fresh.
//
// Fetched roots become rows like the objects of a source, so nothing waits for a fetch. If a bundle cannot be fetched any more, or is not valid,
// its last good roots stay in force, and a problem says so. A Keeper keeps these roots, so that they are also in force after a restart.
//
// Invariants: An endpoint is authenticated by the authorities of the system, and never otherwise. Answers are bounded in size and time. No
// connection is made to addresses that package safedial refuses.
//
// Fetcher.Run owns everything; package schedule starts a goroutine per fetch.
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
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/controller/fair"
	"github.com/pilotmesh/pilot/internal/controller/schedule"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/run/retry"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/policies"
	"github.com/pilotmesh/pilot/internal/xds/class"
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
	Sink   source.Sink
	Client Client
	// Keeper keeps the last good roots.
	Keeper Keeper
	// Ready is closed once the kept roots are in force, or could not be read for some time.
	Ready chan struct{}
	Log   *slog.Logger

	fetches  schedule.Fetches[string, fetched, answer]
	memory   memory
	problems []api.Problem
}

// fetched is the state of a bundle.
type fetched struct {
	roots   string // the last good ones, as PEM
	failure string // of the last attempt, or why there is none
	refresh time.Duration
}

// Keep returns the function that fetches the bundles which a mesh wants, until its context ends. The loop of the mesh does not run yet.
func (f *Fetcher) Keep(mesh *loop.Loop) func(context.Context) {
	wanted := loop.Want(mesh, "wantedBundles", slices.Equal[[]string], func(r *query.Reader, t *state.Tables, _ *class.Queries) (urls []string) {
		for _, data := range t.CACertificates(r).GetCaCertificates() {
			if from := data.GetSpiffeBundleUrl(); from != "" && !slices.Contains(urls, from) {
				urls = append(urls, from)
			}
		}
		return urls
	})
	return func(ctx context.Context) { f.run(ctx, mesh.Synced(), wanted.Changed(), wanted.Then(f.follow)) }
}

// run fetches bundles until ctx ends. synced is closed once the mesh configuration is known. look calls follow, after the commit of all that was applied
// before.
func (f *Fetcher) run(ctx context.Context, synced, changed <-chan struct{}, look func(context.Context)) {
	select {
	case <-synced:
	case <-ctx.Done():
		return
	}
	f.prepare()
	begun, ready := time.Now(), false
	f.fetches.Run(ctx, changed, look, func(ctx context.Context) time.Duration {
		wait := f.keep(ctx)
		if !ready && (f.memory.read || len(f.fetches.Wanted) == 0 || time.Since(begun) > patience) {
			look(ctx) // after the commit of the kept roots
			close(f.Ready)
			ready = true
		}
		return wait
	})
}

// prepare sets the policy.
func (f *Fetcher) prepare() {
	f.memory.pauses = retry.Pauses(firstPause, refresh)
	f.fetches = schedule.Fetches[string, fetched, answer]{
		Compare: cmp.Compare[string], Pauses: schedule.Pauses{First: firstPause, Longest: refresh}, Places: maxBundles, Bounds: fair.Bounds{Total: maxBundles, Share: maxBundles},
		Fetch: f.fetch,
		Done: func(from string, e *schedule.Entry[fetched], a answer, err error) time.Duration {
			return f.done(from, &e.State, a, err)
		},
	}
}

// The failures of bundles that are not fetched.
const notHTTPS = "its address is not one of HTTPS, such as https://spire.example.com/bundle"

func tooMany() string { return fmt.Sprintf("there are more than %d bundles", maxBundles) }

// follow forgets bundles that are not wanted any more, and notes new ones, as far as there is room.
func (f *Fetcher) follow(wanted []string) {
	wants := make([]fair.Want[string], 0, len(wanted))
	for _, from := range wanted {
		wants = append(wants, fair.Want[string]{Thing: from})
	}
	var events []source.Event
	for _, from := range f.fetches.Follow(wants) {
		events = append(events, policies.BundleEvent(from, ""))
	}
	for from, e := range f.fetches.Wanted {
		u, err := url.Parse(from)
		switch {
		case err != nil || !strings.EqualFold(u.Scheme, "https") || u.Host == "":
			e.Held, e.State.failure = true, notHTTPS
		case e.Held:
			e.State.failure = tooMany()
		case e.State.failure == tooMany():
			e.State.failure = ""
		}
	}
	f.apply(events)
}

// fetch fetches one bundle.
func (f *Fetcher) fetch(ctx context.Context, from string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := f.Client.Get(ctx, from, maxBundle)
	if err != nil {
		return answer{}, err
	}
	return parse(body)
}

// done takes in the result of a fetch, and returns the time until the next one.
func (f *Fetcher) done(from string, b *fetched, a answer, err error) time.Duration {
	var events []source.Event
	failure := ""
	if err != nil {
		if failure = err.Error(); failure != b.failure {
			f.Log.Warn("cannot fetch a SPIFFE bundle", "from", shown(from), "reason", failure, "roots_kept", b.roots != "")
		}
	} else {
		b.refresh = a.refresh
		if b.roots != a.roots {
			f.Log.Info("fetched the roots of a SPIFFE bundle", "from", shown(from), "roots", strings.Count(a.roots, "-----BEGIN "))
			b.roots = a.roots
			events = append(events, policies.BundleEvent(from, b.roots))
		}
	}
	b.failure = failure
	f.apply(events)
	return cmp.Or(b.refresh, refresh)
}

// apply passes events on, and changes of the problems.
func (f *Fetcher) apply(events []source.Event) {
	var problems []api.Problem
	for _, from := range slices.Sorted(maps.Keys(f.fetches.Wanted)) {
		if b := &f.fetches.Wanted[from].State; b.failure != "" {
			problems = append(problems, problem(from, b))
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
func problem(from string, b *fetched) api.Problem {
	if b.roots != "" {
		return api.Problem{Severity: api.Warning, Code: "bundle-stale", Reason: fmt.Sprintf(
			"caCertificates of the mesh configuration: the SPIFFE bundle %s cannot be fetched any more, and its last good roots stay in force: %s", shown(from), b.failure)}
	}
	return api.Problem{Severity: api.Error, Code: "bundle-unknown", Reason: fmt.Sprintf(
		"caCertificates of the mesh configuration: the SPIFFE bundle %s cannot be fetched, so its roots are not trusted: %s", shown(from), b.failure)}
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
