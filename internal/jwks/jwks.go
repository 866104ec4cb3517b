// Package jwks fetches the key sets with which proxies verify tokens, and keeps them fresh.
//
// Which key sets are wanted follows from the RequestAuthentications in force. What was fetched becomes rows like the objects of a
// source, so nothing waits for a fetch: until the keys of an issuer are there, its tokens are rejected, and a problem says so. If a
// key set cannot be fetched any more, the last one stays in force.
//
// A user chooses the addresses, so the package bounds what they can do: how large an answer is, how long it takes, how many key sets
// there are, and which addresses are connected to, also behind names and redirects. Neither keys nor tokens are logged.
//
// Fetcher.Run owns everything and starts at most maxFetches goroutines at a time, for which it waits.
package jwks

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/push"
)

// Name is the name of the source of key sets.
const Name = "key sets"

const (
	// period is the time between two looks at what is wanted.
	period = time.Second
	// maxSets bounds how many key sets are fetched, and maxFetches how many at a time.
	maxSets    = 1000
	maxFetches = 8
	// firstPause is the time after a first failure until the next attempt. It doubles with each one, up to longestPause.
	firstPause   = time.Second
	longestPause = time.Hour
)

// DefaultRefresh is the time between two fetches of a key set.
const DefaultRefresh = 20 * time.Minute

// Fetcher fetches key sets.
type Fetcher struct {
	Mesh push.Inspector
	// Changed delivers after the mesh has changed, so that new key sets are fetched at once; nil for nobody to tell.
	Changed <-chan struct{}
	Sink    source.Sink
	// Client makes the requests.
	Client *Client
	// Refresh is the time between two fetches of a key set; 0 for DefaultRefresh.
	Refresh time.Duration
	Log     *slog.Logger

	known   map[state.KeySource]*entry
	results chan result
	running int
}

// entry is what is known of a key set.
type entry struct {
	set      state.KeySet
	fetching bool
	// excess is true if too many key sets come before it.
	excess bool
	pause  time.Duration
	next   time.Time
}

// result is that of one fetch.
type result struct {
	source  state.KeySource
	keys    string
	failure string
}

// Run fetches what is wanted until ctx ends.
func (f *Fetcher) Run(ctx context.Context) {
	f.known, f.results = map[state.KeySource]*entry{}, make(chan result, maxFetches)
	var fetches sync.WaitGroup
	defer fetches.Wait()
	look := time.NewTicker(period)
	defer look.Stop()
	for {
		if wanted, err := f.wanted(ctx); err == nil {
			f.follow(wanted)
		}
		f.start(ctx, &fetches)
		select {
		case <-ctx.Done():
			return
		case r := <-f.results:
			f.finish(r)
		case <-f.Changed:
		case <-look.C:
		}
	}
}

// wanted returns the key sets that are wanted, in order.
func (f *Fetcher) wanted(ctx context.Context) ([]state.KeySource, error) {
	return push.Look(ctx, f.Mesh, func(v *push.View) (list []state.KeySource) {
		for k := range v.Tables.Security.WantedKeys.Group(v.Graph.Glance(), struct{}{}).All() {
			list = append(list, k)
		}
		return list
	})
}

// What is said of key sets before the first answer, and of those that are too many.
const (
	waiting = "they are not fetched yet"
	tooMany = "too many other key sets are wanted"
)

// follow forgets what is not wanted any more, and notes what is new. Of more than maxSets, the first ones are fetched.
func (f *Fetcher) follow(wanted []state.KeySource) {
	var events []source.Event
	still := make(map[state.KeySource]bool, len(wanted))
	for _, k := range wanted {
		e := f.known[k]
		if e == nil {
			e = &entry{set: state.KeySet{Failure: waiting}}
			if len(still) >= maxSets {
				e.set.Failure = tooMany
			}
			events = append(events, state.KeySetEvent(k, &e.set))
			f.known[k] = e
		}
		e.excess = len(still) >= maxSets
		still[k] = true
	}
	for k := range f.known {
		if !still[k] {
			delete(f.known, k)
			events = append(events, state.KeySetEvent(k, nil))
		}
	}
	f.apply(events)
}

func (f *Fetcher) apply(events []source.Event) {
	if len(events) > 0 {
		slices.SortFunc(events, func(a, b source.Event) int { return a.Key.Compare(b.Key) })
		f.Sink.Apply(source.Batch{Source: Name, Events: events, Synced: true})
	}
}

// start starts the fetches that are due.
func (f *Fetcher) start(ctx context.Context, fetches *sync.WaitGroup) {
	now := time.Now()
	for k, e := range f.known {
		if f.running == maxFetches {
			return
		}
		if e.fetching || e.excess || now.Before(e.next) {
			continue
		}
		e.fetching = true
		f.running++
		fetches.Go(func() {
			keys, err := f.Client.Fetch(ctx, k)
			r := result{source: k, keys: keys}
			if err != nil {
				r.failure = err.Error()
			}
			f.results <- r // has room for all that run
		})
	}
}

// finish takes in a result.
func (f *Fetcher) finish(r result) {
	f.running--
	e := f.known[r.source]
	if e == nil {
		return // not wanted any more
	}
	e.fetching = false
	is := state.KeySet{Keys: e.set.Keys, Failure: r.failure}
	if r.failure == "" {
		is.Keys, e.pause = r.keys, 0
		e.next = time.Now().Add(jitter(f.refresh()))
	} else {
		e.pause = min(max(2*e.pause, firstPause), longestPause)
		e.next = time.Now().Add(jitter(e.pause))
	}
	if is == e.set {
		return
	}
	if r.failure != e.set.Failure && r.failure != "" {
		f.Log.Warn("cannot fetch a key set", "from", r.source.Shown(), "reason", r.failure, "keys_kept", is.Keys != "")
	}
	e.set = is
	f.apply([]source.Event{state.KeySetEvent(r.source, &is)})
}

func (f *Fetcher) refresh() time.Duration {
	if f.Refresh > 0 {
		return f.Refresh
	}
	return DefaultRefresh
}

// jitter shortens a time by up to a tenth, so that not all fetches come at once.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/10+1) }
