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
// Fetcher.Run owns everything; package schedule starts a goroutine per fetch.
package keys

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/pilotmesh/pilot/internal/controller/fair"
	"github.com/pilotmesh/pilot/internal/controller/schedule"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/run/retry"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/policies"
	"github.com/pilotmesh/pilot/internal/xds/class"
)

// sourceName is the name of the source of key sets.
const sourceName = "key sets"

const (
	// maxSets bounds how many key sets are fetched, and shareOfSets is how many of them a namespace gets in any case. maxFetches bounds
	// how many are fetched at a time; one namespace alone has half of these places at most.
	maxSets     = 1000
	shareOfSets = 50
	maxFetches  = 16
	// maxStarts is how many fetches a namespace starts per second: each one costs a handshake, and a thousand that fail are soon due again.
	maxStarts = 50
	// firstPause is the time after a first failure until the next attempt. It doubles with each one, up to longestPause.
	firstPause   = time.Second
	longestPause = time.Hour
)

// defaultRefresh is the time between two fetches of a key set.
const defaultRefresh = 20 * time.Minute

// Fetcher fetches key sets.
type Fetcher struct {
	Sink source.Sink
	// Client makes the requests.
	Client *Client
	// Refresh is the time between two fetches of a key set; 0 for defaultRefresh.
	Refresh time.Duration
	Log     *slog.Logger

	fetches schedule.Fetches[policies.KeySource, policies.KeySet, string]
}

// wishes are the wanted key sets, with the namespaces that want them.
type wishes = omap.Map[policies.WantedKeySet, omap.Unit]

// Keep returns the function that fetches the key sets which a mesh wants, until its context ends. The loop of the mesh does not run yet.
func (f *Fetcher) Keep(mesh *loop.Loop) func(context.Context) {
	// The loop only hands out a map, so the number of key sets costs that loop nothing.
	wanted := loop.Want(mesh, "wantedKeySets", wishes.Equal, func(r *query.Reader, t *state.Tables, _ *class.Queries) wishes {
		return t.Security.WantedKeys.Group(r, struct{}{})
	})
	f.prepare()
	return func(ctx context.Context) { f.fetches.Run(ctx, wanted.Changed(), wanted.Then(f.follow), nil) }
}

// prepare sets the policy.
func (f *Fetcher) prepare() {
	f.fetches = schedule.Fetches[policies.KeySource, policies.KeySet, string]{
		Compare: policies.KeySource.Compare, Pauses: schedule.Pauses{First: firstPause, Longest: longestPause},
		Places: maxFetches, Starts: maxStarts, Bounds: fair.Bounds{Total: maxSets, Share: shareOfSets},
		Fetch: f.Client.Fetch, Done: f.done,
	}
}

// The failures of key sets before the first answer, and of key sets beyond the limit.
const (
	waiting = "they are not fetched yet"
	tooMany = "too many key sets are wanted, and its namespace has its share of them; use fewer issuers and addresses in the RequestAuthentications of the namespace"
)

// follow forgets key sets that no policy wants any more, and notes new ones.
func (f *Fetcher) follow(wanted wishes) {
	wants := make([]fair.Want[policies.KeySource], 0, wanted.Len())
	for k := range wanted.All() {
		wants = append(wants, fair.Want[policies.KeySource]{Namespace: k.Namespace, Thing: k.KeySource})
	}
	var events []source.Event
	for _, k := range f.fetches.Follow(wants) {
		events = append(events, policies.KeySetEvent(k, nil))
	}
	for k, e := range f.fetches.Wanted {
		is := e.State
		switch {
		case e.Held:
			is.Failure = tooMany
		case is.Failure == tooMany || is == policies.KeySet{}:
			is.Failure = waiting
		}
		if is != e.State {
			e.State = is
			events = append(events, policies.KeySetEvent(k, &is))
		}
	}
	source.Report(f.Sink, sourceName, events)
}

// done takes in a result, and returns the time until the next fetch.
func (f *Fetcher) done(k policies.KeySource, e *schedule.Entry[policies.KeySet], keys string, err error) time.Duration {
	is, again := policies.KeySet{Keys: keys}, retry.Early(cmp.Or(f.Refresh, defaultRefresh))
	if err != nil {
		is, again = policies.KeySet{Keys: e.State.Keys, Failure: err.Error()}, longestPause
		if is.Failure != e.State.Failure {
			f.Log.Warn("cannot fetch a key set", "from", k.Shown(), "reason", is.Failure, "keys_kept", is.Keys != "")
		}
	}
	if is != e.State {
		e.State = is
		source.Report(f.Sink, sourceName, []source.Event{policies.KeySetEvent(k, &is)})
	}
	return again
}
