// Package names looks up the host names of gateways into networks in the DNS, and keeps their addresses fresh.
//
// Which names are wanted follows from the mesh networks and the Services that lead into a network. Answers become rows like the objects of a
// source, so nothing waits for a server, and an answer that repeats the addresses changes nothing. A name is looked up again when the
// shortest time to live of its answer is over. If that fails, the last good answer stays in force, and a problem says so.
//
// Invariants: A row has no address that proxies must not connect to (package safedial). The two versions of IP are looked up on their own,
// and an answer about one is kept while lookups of the other fail.
//
// Resolver.Run owns everything and starts at most maxLookups goroutines at a time, for which it waits.
package names

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
)

// Name is the name of the source of addresses.
const Name = "gateway names"

const (
	// period is the time between two looks at the wanted names.
	period = time.Second
	// maxNames bounds how many names are looked up, and maxLookups how many at a time.
	maxNames   = 256
	maxLookups = 8
	// leastTTL and mostTTL bound the time after which a name is looked up again.
	leastTTL = 5 * time.Second
	mostTTL  = 10 * time.Minute
	// firstPause is the time after a first failure until the next attempt. It doubles with each one, up to longestPause.
	firstPause   = time.Second
	longestPause = time.Minute
)

// Resolver looks names up.
type Resolver struct {
	Mesh loop.Inspector
	// Changed delivers after the mesh has changed, so that new names are looked up at once.
	Changed <-chan struct{}
	Sink    source.Sink
	Client  *Client
	// Pace is how long a second of a time to live lasts; 0 for a second. Tests shorten it.
	Pace time.Duration
	Log  *slog.Logger

	known   map[string]*entry
	results chan result
	running int
}

// entry is the state of a name.
type entry struct {
	is state.Resolution
	// kept are the addresses of the last good answer about each family.
	kept    map[family][]netip.Addr
	asking  bool
	waiting bool // for the first answer: there is no row yet
	// excess is true if too many names are wanted, and this one is not looked up.
	excess bool
	pause  time.Duration
	next   time.Time
}

// result is the outcome of one lookup.
type result struct {
	host    string
	answers map[family]answer
	failure error // of a family without an answer
}

// Run looks names up until ctx ends.
func (v *Resolver) Run(ctx context.Context) {
	v.known, v.results = map[string]*entry{}, make(chan result, maxLookups)
	var lookups sync.WaitGroup
	defer lookups.Wait()
	look := time.NewTicker(period)
	defer look.Stop()
	v.look(ctx)
	for {
		due := time.NewTimer(v.start(ctx, &lookups))
		select {
		case <-ctx.Done():
			due.Stop()
			return
		case r := <-v.results:
			v.finish(r)
		case <-v.Changed:
			v.look(ctx)
		case <-look.C:
			v.look(ctx)
		case <-due.C:
		}
		due.Stop()
	}
}

// look follows the names that are wanted.
func (v *Resolver) look(ctx context.Context) {
	wanted, err := loop.Look(ctx, v.Mesh, func(m *loop.View) (hosts []string) {
		for _, n := range m.Queries.Services.GatewayNames(m.Graph.Glance()) {
			hosts = append(hosts, n.Host)
		}
		return hosts
	})
	if err == nil {
		v.follow(wanted)
	}
}

// follow forgets names that are not wanted any more, and notes new ones, as far as there is room.
func (v *Resolver) follow(wanted []string) {
	var events []source.Event
	for host := range v.known {
		if !slices.Contains(wanted, host) {
			delete(v.known, host)
			events = append(events, state.ResolutionEvent(host, nil))
		}
	}
	for _, host := range wanted {
		e := v.known[host]
		if e == nil {
			e = &entry{waiting: true, kept: map[family][]netip.Addr{}}
			v.known[host] = e
		}
		switch room := v.asked() <= maxNames; {
		case e.excess && v.asked() < maxNames:
			e.excess = false
		case !room && e.waiting && !e.asking:
			e.excess, e.waiting, e.is = true, false, state.Resolution{Failure: tooMany}
			events = append(events, state.ResolutionEvent(host, &e.is))
		}
	}
	v.apply(events)
}

// tooMany is the failure of names beyond the limit.
const tooMany = "too many names are wanted; use IP addresses, or fewer gateways"

// asked is how many names are looked up.
func (v *Resolver) asked() (n int) {
	for _, e := range v.known {
		if !e.excess {
			n++
		}
	}
	return n
}

func (v *Resolver) apply(events []source.Event) {
	if len(events) > 0 {
		slices.SortFunc(events, func(a, b source.Event) int { return a.Key.Compare(b.Key) })
		v.Sink.Apply(source.Batch{Source: Name, Events: events, Synced: true})
	}
}

// start starts the lookups that are due, as far as there are places, and returns the time until the next one is due.
func (v *Resolver) start(ctx context.Context, lookups *sync.WaitGroup) time.Duration {
	now, wait := time.Now(), time.Hour
	for host, e := range v.known {
		switch {
		case e.asking || e.excess:
		case now.Before(e.next):
			wait = min(wait, e.next.Sub(now))
		case v.running < maxLookups:
			e.asking = true
			v.running++
			lookups.Go(func() { v.results <- v.Client.lookUp(ctx, host) }) // has room for all that run
		}
	}
	return wait
}

// lookUp asks about both families.
func (c *Client) lookUp(ctx context.Context, host string) result {
	r := result{host: host, answers: map[family]answer{}}
	for _, f := range families() {
		a, err := c.ask(ctx, host, f)
		if err == nil {
			r.answers[f] = a
		} else if r.failure == nil {
			r.failure = err
		}
	}
	return r
}

// errNone is why a name has no addresses although a server has answered.
var errNone = errors.New("the DNS has no address of it")

// finish takes in a result.
func (v *Resolver) finish(r result) {
	v.running--
	e := v.known[r.host]
	if e == nil {
		return // not wanted any more
	}
	e.asking = false
	ttl, failure := r.judge()
	if failure == nil {
		for f, a := range r.answers {
			e.kept[f] = a.addresses
		}
	}
	is := state.Resolution{Addresses: e.addresses()}
	if failure != nil {
		is.Failure = failure.Error()
		e.pause = min(max(2*e.pause, firstPause), longestPause)
		e.next = time.Now().Add(v.scaled(e.pause))
	} else {
		e.pause = 0
		e.next = time.Now().Add(v.scaled(min(max(ttl, leastTTL), mostTTL)))
	}
	if is == e.is && !e.waiting {
		return
	}
	if failure != nil && is.Failure != e.is.Failure {
		v.Log.Warn("the host name of a gateway cannot be resolved", "name", r.host, "reason", is.Failure, "addresses_kept", !is.Addresses.Empty())
	}
	e.is, e.waiting = is, false
	v.apply([]source.Event{state.ResolutionEvent(r.host, &is)})
}

// judge returns the shortest time to live of the answers, or why the result is none: no family has a usable address.
func (r result) judge() (ttl time.Duration, failure error) {
	found, blocked := false, false
	for _, a := range r.answers {
		if len(a.addresses) > 0 && (!found || a.ttl < ttl) {
			ttl = a.ttl
		}
		found, blocked = found || len(a.addresses) > 0, blocked || a.blocked
	}
	switch {
	case found:
		return ttl, nil
	case r.failure != nil:
		return 0, r.failure
	case blocked:
		return 0, errBlocked
	}
	return 0, errNone
}

// addresses are the kept addresses of both families, sorted as text.
func (e *entry) addresses() intern.List[string] {
	var list []string
	for _, kept := range e.kept {
		for _, ip := range kept {
			list = append(list, ip.String())
		}
	}
	slices.Sort(list)
	return intern.Of(list...)
}

// scaled is how long a time of the DNS lasts.
func (v *Resolver) scaled(d time.Duration) time.Duration {
	if v.Pace == 0 {
		return d
	}
	return time.Duration(float64(d) / float64(time.Second) * float64(v.Pace))
}
