// Package keys fetches the key sets with which proxies verify tokens, and keeps them fresh.
//
// Which key sets are wanted follows from the RequestAuthentications in force. Fetched key sets become rows like the
// objects of a source, so nothing waits for a fetch: until the keys of an issuer arrive, its tokens are rejected, and a
// problem says so. If a key set cannot be fetched any more, the last one stays in force.
//
// A user chooses the addresses, so the package bounds their effect: how large an answer is, how long it takes, how many
// key sets there are, and which addresses are connected to, also behind names and redirects. Each namespace has a share
// of every common bound, so that none keeps the others waiting. Neither keys nor tokens are logged.
//
// Fetcher.Run owns everything and starts at most maxFetches goroutines at a time, for which it waits.
package keys

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/internal/controller/fair"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state/policies"
)

// sourceName is the name of the source of key sets.
const sourceName = "key sets"

const (
	// period is the time between two reads of the wanted key sets.
	period = time.Second
	// maxSets bounds how many key sets are fetched, and shareOfSets is how many of them a namespace gets in any case. maxFetches bounds
	// how many are fetched at a time; one namespace alone has half of these places at most.
	maxSets     = 1000
	shareOfSets = 50
	maxFetches  = 16
	// maxStarts is how many fetches a namespace starts per period: each one costs a handshake, and a thousand that fail are soon due again.
	maxStarts = 50
	// firstPause is the time after a first failure until the next attempt. It doubles with each one, up to longestPause.
	firstPause   = time.Second
	longestPause = time.Hour
)

// defaultRefresh is the time between two fetches of a key set.
const defaultRefresh = 20 * time.Minute

// Fetcher fetches key sets.
type Fetcher struct {
	Mesh loop.Inspector
	// Changed delivers after the mesh has changed, so that new key sets are fetched at once; nil if no such signal exists.
	Changed <-chan struct{}
	Sink    source.Sink
	// Client makes the requests.
	Client *Client
	// Refresh is the time between two fetches of a key set; 0 for defaultRefresh.
	Refresh time.Duration
	Log     *slog.Logger

	known   map[policies.KeySource]*entry
	results chan result
	running int
	// wanted are the key sets that were wanted when the fetcher last looked, owners the namespaces that want a key set, and places the
	// places for fetches that namespaces have.
	wanted omap.Map[policies.WantedKeySet, omap.Unit]
	owners map[policies.KeySource][]string
	places fair.Running
	// started is how many fetches each namespace has started in this period.
	started map[string]int
	// due are the key sets to be fetched as soon as there are places, in order.
	due []dueSet
}

// dueSet is a key set whose fetch is due.
type dueSet struct {
	source policies.KeySource
	*entry
}

// entry is the state of a key set.
type entry struct {
	set      policies.KeySet
	fetching bool
	// excess is true if too many key sets are wanted, and this one is not fetched.
	excess bool
	pause  time.Duration
	next   time.Time
}

// result is the result of one fetch.
type result struct {
	source  policies.KeySource
	place   string // the namespace whose place the fetch had
	keys    string
	failure string
}

// Run fetches the wanted key sets until ctx ends.
func (f *Fetcher) Run(ctx context.Context) {
	f.known, f.results, f.started = map[policies.KeySource]*entry{}, make(chan result, maxFetches), map[string]int{}
	var fetches sync.WaitGroup
	defer fetches.Wait()
	look := time.NewTicker(period)
	defer look.Stop()
	f.look(ctx)
	for {
		f.start(ctx, &fetches)
		select {
		case <-ctx.Done():
			return
		case r := <-f.results:
			f.finish(r)
		case <-f.Changed:
			f.look(ctx)
		case <-look.C:
			f.started = map[string]int{}
			f.look(ctx)
			f.queue()
		}
	}
}

// look follows the key sets that are wanted, if they have changed. The loop of the mesh only hands out a map, so the
// number of key sets costs that loop nothing.
func (f *Fetcher) look(ctx context.Context) {
	wanted, err := loop.Look(ctx, f.Mesh, func(v *loop.View) omap.Map[policies.WantedKeySet, omap.Unit] {
		return v.Tables.Security.WantedKeys.Group(v.Graph.Glance(), struct{}{})
	})
	if err == nil && !wanted.Same(f.wanted) {
		f.wanted = wanted
		list := make([]policies.WantedKeySet, 0, wanted.Len())
		for k := range wanted.All() {
			list = append(list, k)
		}
		f.follow(list)
	}
}

// ownersOf are the namespaces that want a key set.
func (f *Fetcher) ownersOf(k policies.KeySource) []string {
	if list := f.owners[k]; len(list) > 0 {
		return list
	}
	return []string{""}
}

// The failures of key sets before the first answer, and of key sets beyond the limit.
const (
	waiting = "they are not fetched yet"
	tooMany = "too many key sets are wanted, and its namespace has its share of them; use fewer issuers and addresses in the RequestAuthentications of the namespace"
)

// follow forgets key sets that no policy wants any more, and notes new ones. Of more than maxSets, the fetched ones stay, and each
// namespace gets its share.
func (f *Fetcher) follow(wanted []policies.WantedKeySet) {
	var events []source.Event
	f.owners = map[policies.KeySource][]string{}
	var wants []fair.Want[policies.KeySource]
	var sources []policies.KeySource // each once
	for _, k := range wanted {
		if f.owners[k.KeySource] == nil {
			sources = append(sources, k.KeySource)
		}
		f.owners[k.KeySource] = append(f.owners[k.KeySource], k.Namespace)
		wants = append(wants, fair.Want[policies.KeySource]{Namespace: k.Namespace, Thing: k.KeySource})
	}
	granted := fair.Grant(wants, fair.Bounds{Total: maxSets, Share: shareOfSets}, func(k policies.KeySource) bool {
		return f.known[k] != nil && !f.known[k].excess
	})
	for _, k := range sources {
		e := f.known[k]
		isNew := e == nil
		if isNew {
			e = &entry{set: policies.KeySet{Failure: waiting}}
			f.known[k] = e
		}
		was := e.set
		switch e.excess = !granted[k]; {
		case e.excess && e.set.Failure != tooMany:
			e.set.Failure = tooMany
		case !e.excess && e.set.Failure == tooMany:
			e.set.Failure, e.next = waiting, time.Time{}
		}
		if isNew || e.set != was {
			set := e.set
			events = append(events, policies.KeySetEvent(k, &set))
		}
	}
	for k := range f.known {
		if f.owners[k] == nil {
			delete(f.known, k)
			events = append(events, policies.KeySetEvent(k, nil))
		}
	}
	f.apply(events)
	f.queue()
}

func (f *Fetcher) apply(events []source.Event) {
	if len(events) > 0 {
		slices.SortFunc(events, func(a, b source.Event) int { return a.Key.Compare(b.Key) })
		f.Sink.Apply(source.Batch{Source: sourceName, Events: events, Synced: true})
	}
}

// queue lists the key sets whose fetches are due, new ones first. It is called when there are new ones, and once per period: not after each
// fetch, because a namespace may want a thousand sets that fail at once.
func (f *Fetcher) queue() {
	now := time.Now()
	f.due = f.due[:0]
	for k, e := range f.known {
		if !e.fetching && !e.excess && !now.Before(e.next) {
			f.due = append(f.due, dueSet{k, e})
		}
	}
	slices.SortFunc(f.due, func(a, b dueSet) int {
		return cmp.Or(a.next.Compare(b.next), a.source.Compare(b.source))
	})
}

// start starts the fetches that are due, as far as their namespaces have places. Those beyond maxStarts wait for the next period.
func (f *Fetcher) start(ctx context.Context, fetches *sync.WaitGroup) {
	waiting := f.due[:0]
	for _, one := range f.due {
		k, e := one.source, one.entry
		if f.running == maxFetches {
			waiting = append(waiting, one)
			continue
		}
		namespace := f.payer(k)
		if f.started[namespace] >= maxStarts {
			continue // queue lists it again in the next period
		}
		if !f.places.Start(namespace, maxFetches-f.running) {
			waiting = append(waiting, one)
			continue
		}
		f.started[namespace]++
		e.fetching = true
		f.running++
		fetches.Go(func() {
			keys, err := f.Client.Fetch(ctx, k)
			r := result{source: k, place: namespace, keys: keys}
			if err != nil {
				r.failure = err.Error()
			}
			f.results <- r // has room for all that run
		})
	}
	f.due = waiting
}

// payer is the namespace whose share a fetch uses: of the namespaces that want the key set, the one with the fewest fetches in this period
// and then the fewest that are running.
func (f *Fetcher) payer(k policies.KeySource) string {
	return slices.MinFunc(f.ownersOf(k), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.started[a], f.started[b]), cmp.Compare(f.places.Of(a), f.places.Of(b)))
	})
}

// finish takes in a result.
func (f *Fetcher) finish(r result) {
	f.running--
	f.places.End(r.place)
	e := f.known[r.source]
	if e == nil {
		return // not wanted any more
	}
	e.fetching = false
	is := policies.KeySet{Keys: e.set.Keys, Failure: r.failure}
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
	f.apply([]source.Event{policies.KeySetEvent(r.source, &is)})
}

func (f *Fetcher) refresh() time.Duration {
	if f.Refresh > 0 {
		return f.Refresh
	}
	return defaultRefresh
}

// jitter shortens a time by up to a tenth, so that not all fetches come at once.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/10+1) }
