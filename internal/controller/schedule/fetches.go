package schedule

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/internal/controller/fair"
)

// startsPeriod is the time for which Fetches.Starts counts.
const startsPeriod = time.Second

// Fetches fetches what wanted keys name, and keeps it fresh. S is the state that a controller keeps for each key, and A an answer.
type Fetches[K comparable, S, A any] struct {
	// Compare orders keys whose fetches are due at the same time.
	Compare func(a, b K) int
	// Pauses are the pauses after failures.
	Pauses Pauses
	// Places bounds the fetches that run at a time. A namespace leaves places to others; see fair.Running.
	Places int
	// Starts bounds how many fetches a namespace starts per second; 0 for no bound.
	Starts int
	// Bounds bound how many keys are fetched. The zero value means no bound.
	Bounds fair.Bounds
	// Fetch fetches what a key names. It runs on a goroutine of its own.
	Fetch func(ctx context.Context, k K) (A, error)
	// Done takes in the result of a fetch, unless its key is not wanted any more. It returns the time until the next fetch; after an error this is a
	// bound of the pause.
	Done func(k K, e *Entry[S], a A, err error) time.Duration
	// Wanted are the wanted keys. Follow replaces them.
	Wanted map[K]*Entry[S]

	agenda Agenda[K] // of the keys that neither wait nor run
	// waiting are the keys that are fetched as soon as they have a place, in this order.
	waiting []K
	results chan result[K, S, A]
	running int
	places  fair.Running
	// started counts the fetches of each namespace since counted.
	started map[string]int
	counted time.Time
}

// Entry is a wanted key.
type Entry[S any] struct {
	State S
	// Held is true if nothing is fetched for the key. Follow sets it if there are more keys than Bounds allow, and a controller may set it after that.
	Held bool

	owners  []string
	running bool
}

// result is the result of one fetch.
type result[K comparable, S, A any] struct {
	key    K
	entry  *Entry[S]
	owner  string
	answer A
	err    error
}

// Follow replaces the wanted keys, in the order in which namespaces get them. A key has the namespaces that want it, or an empty one if it belongs to
// none: such a key can use all places. Follow returns the keys that are not wanted any more.
func (f *Fetches[K, S, A]) Follow(wants []fair.Want[K]) (gone []K) {
	owners, sorted := map[K][]string{}, make([]K, 0, len(wants))
	for _, w := range wants {
		if owners[w.Thing] == nil {
			sorted = append(sorted, w.Thing)
		}
		owners[w.Thing] = append(owners[w.Thing], w.Namespace)
	}
	bounds := f.Bounds
	if bounds == (fair.Bounds{}) {
		bounds = fair.Bounds{Total: math.MaxInt, Share: math.MaxInt}
	}
	granted := fair.Grant(wants, bounds, func(k K) bool { return f.Wanted[k] != nil && !f.Wanted[k].Held })
	for k := range f.Wanted {
		if owners[k] == nil {
			delete(f.Wanted, k)
			f.agenda.Drop(k)
			gone = append(gone, k)
		}
	}
	if f.Wanted == nil {
		f.Wanted = make(map[K]*Entry[S], len(sorted))
	}
	var fresh []K
	for _, k := range sorted {
		e := f.Wanted[k]
		if e == nil {
			e = &Entry[S]{Held: true}
			f.Wanted[k] = e
		}
		if e.Held && granted[k] {
			f.agenda.Drop(k)
			fresh = append(fresh, k)
		}
		e.Held, e.owners = !granted[k], owners[k]
	}
	slices.SortFunc(fresh, f.Compare)
	f.waiting = append(fresh, slices.DeleteFunc(f.waiting, func(k K) bool {
		return f.Wanted[k] == nil || slices.Contains(fresh, k)
	})...)
	return gone
}

// Run fetches until ctx ends. look calls Follow; it is called again after changed has delivered. between, if set, runs before each wait, and returns the
// time until it is to run again at the latest.
func (f *Fetches[K, S, A]) Run(ctx context.Context, changed <-chan struct{}, look func(context.Context), between func(context.Context) time.Duration) {
	var running sync.WaitGroup
	defer running.Wait()
	f.agenda.Compare, f.agenda.Pauses = f.Compare, f.Pauses
	f.results, f.started = make(chan result[K, S, A], f.Places), map[string]int{}
	look(ctx)
	for ctx.Err() == nil {
		wait := idle
		if between != nil {
			wait = between(ctx)
		}
		alarm := time.NewTimer(min(wait, f.start(ctx, &running)))
		select {
		case <-ctx.Done():
		case r := <-f.results:
			f.finish(r)
		case <-changed:
			look(ctx)
		case <-alarm.C:
		}
		alarm.Stop()
	}
}

// start starts the fetches that are due, as far as there are places, and returns the time after which more can start.
func (f *Fetches[K, S, A]) start(ctx context.Context, running *sync.WaitGroup) time.Duration {
	now, wait := time.Now(), idle
	if now.Sub(f.counted) >= startsPeriod {
		f.counted = now
		clear(f.started)
	}
	due := append(f.waiting, f.agenda.Take(math.MaxInt)...)
	f.waiting = due[:0]
	for _, k := range due {
		e := f.Wanted[k]
		if e.Held || e.running {
			continue
		}
		owner, again := f.place(e)
		if again > 0 {
			f.waiting, wait = append(f.waiting, k), min(wait, again)
			continue
		}
		e.running = true
		running.Go(func() {
			a, err := f.Fetch(ctx, k)
			f.results <- result[K, S, A]{k, e, owner, a, err} // has room for all that run
		})
	}
	return min(wait, f.agenda.Wait())
}

// place takes a place for a fetch: of the namespaces that want the key, the one with the fewest fetches in this period and then the fewest that are
// running pays for it. If there is no place, place returns the time until there may be one.
func (f *Fetches[K, S, A]) place(e *Entry[S]) (owner string, again time.Duration) {
	owner = slices.MinFunc(e.owners, func(a, b string) int {
		return cmp.Or(cmp.Compare(f.started[a], f.started[b]), cmp.Compare(f.places.Of(a), f.places.Of(b)))
	})
	switch free := f.Places - f.running; {
	case f.Starts > 0 && f.started[owner] >= f.Starts:
		return "", max(time.Until(f.counted.Add(startsPeriod)), 1)
	case free == 0, owner != "" && !f.places.Start(owner, free):
		return "", idle // until a fetch has ended
	}
	f.started[owner]++
	f.running++
	return owner, 0
}

// finish takes in a result.
func (f *Fetches[K, S, A]) finish(r result[K, S, A]) {
	f.running--
	f.places.End(r.owner)
	if f.Wanted[r.key] != r.entry {
		return // not wanted any more, or wanted again since
	}
	r.entry.running = false
	again := f.Done(r.key, r.entry, r.answer, r.err)
	if r.err != nil {
		f.agenda.Retry(r.key, again)
		return
	}
	f.agenda.At(r.key, time.Now().Add(again))
}
