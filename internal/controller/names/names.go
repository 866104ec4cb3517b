// Package names looks up the host names of gateways into networks in the DNS, and keeps their addresses fresh.
//
// Which names are wanted follows from the mesh networks and the Services that lead into a network. Answers become rows like the objects of a
// source, so nothing waits for a server, and an answer that repeats the addresses changes nothing. A name is looked up again when the
// shortest time to live of its answer is over. If that fails, the last good answer stays in force, and a problem says so.
//
// Invariants: A row has no address that proxies must not connect to (package safedial). The two versions of IP are looked up on their own,
// and an answer about one is kept while lookups of the other fail.
//
// Resolver.Run owns everything; package schedule starts a goroutine per lookup.
package names

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/pilotmesh/pilot/internal/controller/fair"
	"github.com/pilotmesh/pilot/internal/controller/schedule"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/class"
)

// Name is the name of the source of addresses.
const Name = "gateway names"

const (
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
	Sink   source.Sink
	Client *Client
	// Pace is how long a second of a time to live lasts; 0 for a second. Tests shorten it.
	Pace time.Duration
	Log  *slog.Logger

	lookups schedule.Fetches[string, name, answers]
}

// name is the state of a name.
type name struct {
	is state.Resolution
	// kept are the addresses of the last good answer about each family.
	kept map[family][]netip.Addr
	// known is true if there is a row.
	known bool
}

// answers is the outcome of one lookup.
type answers struct {
	of      map[family]answer
	failure error // of a family without an answer
}

// Keep returns the function that looks up the names which a mesh wants, until its context ends. The loop of the mesh does not run yet.
func (v *Resolver) Keep(mesh *loop.Loop) func(context.Context) {
	wanted := loop.Want(mesh, "wantedNames", slices.Equal[[]string], func(r *query.Reader, _ *state.Tables, q *class.Queries) (hosts []string) {
		for _, n := range q.Services.GatewayNames(r) {
			hosts = append(hosts, n.Host)
		}
		return hosts
	})
	v.prepare()
	return func(ctx context.Context) { v.lookups.Run(ctx, wanted.Changed(), wanted.Then(v.follow), nil) }
}

// prepare sets the policy.
func (v *Resolver) prepare() {
	v.lookups = schedule.Fetches[string, name, answers]{
		Compare: cmp.Compare[string], Pauses: schedule.Pauses{First: v.scaled(firstPause), Longest: v.scaled(longestPause)},
		Places: maxLookups, Bounds: fair.Bounds{Total: maxNames, Share: maxNames},
		Fetch: func(ctx context.Context, host string) (answers, error) {
			r := v.Client.lookUp(ctx, host)
			_, failure := r.judge()
			return r, failure
		},
		Done: v.done,
	}
}

// tooMany is the failure of names beyond the limit.
const tooMany = "too many names are wanted; use IP addresses, or fewer gateways"

// follow forgets names that are not wanted any more, and notes new ones.
func (v *Resolver) follow(wanted []string) {
	wants := make([]fair.Want[string], 0, len(wanted))
	for _, host := range wanted {
		wants = append(wants, fair.Want[string]{Thing: host})
	}
	var events []source.Event
	for _, host := range v.lookups.Follow(wants) {
		events = append(events, state.ResolutionEvent(host, nil))
	}
	for host, e := range v.lookups.Wanted {
		if e.Held && !e.State.known {
			is := state.Resolution{Failure: tooMany}
			e.State.is, e.State.known = is, true
			events = append(events, state.ResolutionEvent(host, &is))
		}
	}
	source.Report(v.Sink, Name, events)
}

// lookUp asks about both families.
func (c *Client) lookUp(ctx context.Context, host string) answers {
	r := answers{of: map[family]answer{}}
	for _, f := range families() {
		a, err := c.ask(ctx, host, f)
		if err == nil {
			r.of[f] = a
		} else if r.failure == nil {
			r.failure = err
		}
	}
	return r
}

// errNone is why a name has no addresses although a server has answered.
var errNone = errors.New("the DNS has no address of it")

// done takes in the outcome of a lookup, and returns the time until the next one.
func (v *Resolver) done(host string, e *schedule.Entry[name], r answers, failure error) time.Duration {
	n := &e.State
	ttl, _ := r.judge()
	if n.kept == nil {
		n.kept = map[family][]netip.Addr{}
	}
	is, again := state.Resolution{}, min(max(ttl, leastTTL), mostTTL)
	if failure != nil {
		is.Failure, again = failure.Error(), longestPause
	} else {
		for f, a := range r.of {
			n.kept[f] = a.addresses
		}
	}
	is.Addresses = n.addresses()
	if is != n.is || !n.known {
		if failure != nil && is.Failure != n.is.Failure {
			v.Log.Warn("the host name of a gateway cannot be resolved", "name", host, "reason", is.Failure, "addresses_kept", !is.Addresses.Empty())
		}
		n.is, n.known = is, true
		source.Report(v.Sink, Name, []source.Event{state.ResolutionEvent(host, &is)})
	}
	return v.scaled(again)
}

// judge returns the shortest time to live of the answers, or why the result is none: no family has a usable address.
func (r answers) judge() (ttl time.Duration, failure error) {
	found, blocked := false, false
	for _, a := range r.of {
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
func (n *name) addresses() intern.List[string] {
	var list []string
	for _, kept := range n.kept {
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
