// Package permission finds out which service accounts may read the Secrets of the cluster that their proxies ask for, and has these
// Secrets read, and no others.
//
// The pull secrets that extensions name are read, too, without a question: agents get them only to fetch the images of these extensions. So
// are ConfigMaps that proxies ask for: of the namespace of the proxy, or named by a DestinationRule beside them.
//
// Rows name the Secrets that proxies ask for. Keeper asks the API server, off the commit path, whether an account may read the Secrets of
// its namespace; the answers become rows like the objects of a source, and count for a bounded time. A Secret is read only while some proxy
// asks for it whose account may read it. If the API server cannot be asked any more, its last answer counts for a while longer.
//
// Keeper.Run owns everything and starts at most maxRequests goroutines at a time, for which it waits.
package permission

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/controller/fair"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/secret"
)

// Name is the name of the source of permissions.
const Name = "secret permissions"

// How long answers count, and the limits of requests.
const (
	// period is the time between two looks at the Secrets that proxies ask for.
	period = time.Second
	// allowedFor and refusedFor are the times after which an answer is asked for again. staleFor is how long an answer counts if the
	// API server cannot be asked any more.
	allowedFor, refusedFor, staleFor = 30 * time.Second, 5 * time.Second, 5 * time.Minute
	// firstPause is the time after a first failure until the next attempt. It doubles with each one, up to longestPause.
	firstPause, longestPause = 500 * time.Millisecond, 30 * time.Second
	// maxRequests bounds the requests at a time; one namespace alone has half of these places at most. patience is how long one may take.
	maxRequests = 16
	patience    = 10 * time.Second
	// maxSecrets bounds how many Secrets are read, and shareOfSecrets is how many of them a namespace gets in any case. maxOfAccount
	// bounds how many are read for one service account.
	maxSecrets     = 2000
	shareOfSecrets = 200
	maxOfAccount   = 200
)

// Reviewer asks an API server about service accounts.
type Reviewer interface {
	// MayListSecrets reports whether an account may list the Secrets of its namespace.
	MayListSecrets(ctx context.Context, namespace, account string) (bool, error)
}

// Keeper keeps permissions.
type Keeper struct {
	Mesh loop.Inspector
	// Changed delivers after the mesh has changed; nil to look at intervals only.
	Changed  <-chan struct{}
	Sink     source.Sink
	Reviewer Reviewer
	// Cluster is the ID of the cluster, and Want has Secrets of it read, and no others.
	Cluster string
	Want    func([]api.Key)
	Log     *slog.Logger

	asked demand
	// configMaps are the ConfigMaps that proxies ask for and may have, with the namespaces of these proxies.
	configMaps []fair.Want[api.Key]
	accounts   map[connected.Account]*account
	wanted     []api.Key
	problems   []api.Problem
	results    chan result
	running    int
	places     fair.Running // the places for requests that namespaces have
}

// account is the state of a service account whose proxies ask for Secrets.
type account struct {
	secrets []string // the names of the Secrets that its proxies ask for, sorted
	told    state.Permission
	known   bool // an answer was received and passed on
	asking  bool
	good    time.Time // when the API server answered last
	pause   time.Duration
	next    time.Time
}

// demand are the Secrets and ConfigMaps that proxies ask for, the pull secrets that extensions name, and the ConfigMaps that DestinationRules
// beside them name.
type demand struct {
	asked omap.Map[connected.Asked, omap.Unit]
	pulls omap.Map[api.Key, omap.Unit]
	named omap.Map[omap.Name, omap.Unit]
}

func (d demand) equal(o demand) bool {
	return d.asked.Equal(o.asked) && d.pulls.Equal(o.pulls) && d.named.Equal(o.named)
}

// result is an answer of the API server.
type result struct {
	of      connected.Account
	allowed bool
	err     error
}

// Run keeps permissions until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	k.accounts, k.results = map[connected.Account]*account{}, make(chan result, maxRequests)
	var requests sync.WaitGroup
	defer requests.Wait()
	look := time.NewTicker(period)
	defer look.Stop()
	for {
		now, err := loop.Look(ctx, k.Mesh, func(v *loop.View) demand {
			r := v.Graph.Glance()
			return demand{v.Tables.Asking.Group(r, struct{}{}), v.Tables.Extensions.PullSecrets.Group(r, struct{}{}), v.Tables.NamedConfigMaps.Group(r, struct{}{})}
		})
		if err == nil && !now.equal(k.asked) {
			k.asked = now
			k.follow()
		}
		k.start(ctx, &requests)
		select {
		case <-ctx.Done():
			return
		case r := <-k.results:
			k.finish(r, time.Now())
		case <-k.Changed:
		case <-look.C:
		}
	}
}

// sort returns the names of the Secrets that proxies ask for, by their account, and keeps the ConfigMaps. It leaves out what such a proxy does
// not get, whatever its account may do.
func (k *Keeper) sort() map[connected.Account][]string {
	secrets := map[connected.Account][]string{}
	k.configMaps = nil
	for a := range k.asked.asked.All() {
		if resource.Type(a.Type) != resource.Secret {
			continue
		}
		n, reason := secret.ParseName(a.Name)
		own := n.Namespace == "" || n.Namespace == a.By.Namespace
		switch {
		case reason != "" || a.By.Namespace == "":
		case n.ConfigMap && (own || k.asked.named.Has(omap.Name(n.Credential()))):
			key := api.Key{Kind: kube.KindConfigMap, Namespace: n.Namespace, Name: n.Secret, Cluster: k.Cluster}
			k.configMaps = append(k.configMaps, fair.Want[api.Key]{Namespace: a.By.Namespace, Thing: key})
		case !n.ConfigMap && own:
			secrets[a.By] = append(secrets[a.By], n.Secrets()...)
		}
	}
	return secrets
}

// follow updates the accounts and their Secrets from asked.
func (k *Keeper) follow() {
	secrets := k.sort()
	var events []source.Event
	for of := range k.accounts {
		if secrets[of] == nil {
			delete(k.accounts, of)
			events = append(events, state.PermissionEvent(of, nil))
		}
	}
	for of, names := range secrets {
		if k.accounts[of] == nil {
			k.accounts[of] = &account{}
		}
		slices.Sort(names)
		k.accounts[of].secrets = slices.Compact(names)
	}
	k.apply(events)
}

// apply passes events on, and has the Secrets read that accounts may read now. A Secret goes after the permission to read it,
// and is read after the permission has come: no proxy waits for it earlier.
func (k *Keeper) apply(events []source.Event) {
	wanted, problems := k.secrets()
	b := source.Batch{Source: Name, Events: events, Problems: source.ProblemEvents(k.problems, problems), Synced: true}
	k.problems = problems
	if len(b.Events) > 0 || len(b.Problems) > 0 {
		slices.SortFunc(b.Events, func(x, y source.Event) int { return x.Key.Compare(y.Key) })
		k.Sink.Apply(b)
	}
	if !slices.Equal(wanted, k.wanted) {
		k.wanted = wanted
		k.Want(slices.Clone(wanted))
	}
}

// secrets are the Secrets that accounts ask for which may read them, the ConfigMaps, and the pull secrets.
func (k *Keeper) secrets() (keys []api.Key, problems []api.Problem) {
	var wants []fair.Want[api.Key]
	for _, of := range slices.SortedFunc(maps.Keys(k.accounts), connected.Account.Compare) {
		a := k.accounts[of]
		if !a.told.Allowed {
			continue
		}
		names := a.secrets
		if len(names) > maxOfAccount {
			problems = append(problems, excess("the proxies of the service account %s/%s ask for %d Secrets; only %d of them are read", of.Namespace, of.Name, len(names), maxOfAccount))
			names = names[:maxOfAccount]
		}
		for _, name := range names {
			key := api.Key{Kind: kube.KindSecret, Namespace: of.Namespace, Name: name, Cluster: k.Cluster}
			wants = append(wants, fair.Want[api.Key]{Namespace: of.Namespace, Thing: key})
		}
	}
	wants = append(wants, k.configMaps...)
	for key := range k.asked.pulls.All() {
		key.Kind, key.Cluster = kube.KindSecret, k.Cluster
		wants = append(wants, fair.Want[api.Key]{Namespace: key.Namespace, Thing: key})
	}
	granted := fair.Grant(wants, fair.Bounds{Total: maxSecrets, Share: shareOfSecrets}, func(key api.Key) bool {
		_, had := slices.BinarySearchFunc(k.wanted, key, api.Key.Compare)
		return had
	})
	refused := map[api.Key]bool{}
	lost := map[string]int{}
	for _, w := range wants {
		if !granted[w.Thing] && !refused[w.Thing] {
			refused[w.Thing] = true
			lost[w.Namespace]++
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(lost)) {
		problems = append(problems, excess("proxies ask for more than %d Secrets and ConfigMaps; %d that the proxies of namespace %s ask for are not read, because it has its share: name fewer of them there",
			maxSecrets, lost[namespace], namespace))
	}
	return slices.SortedFunc(maps.Keys(granted), api.Key.Compare), problems
}

func excess(format string, args ...any) api.Problem {
	return api.Problem{Severity: api.Error, Code: "credential-excess", Reason: fmt.Sprintf(format, args...)}
}

// start starts the requests that are due.
func (k *Keeper) start(ctx context.Context, requests *sync.WaitGroup) {
	now := time.Now()
	var due []connected.Account
	for of, a := range k.accounts {
		if !a.asking && !now.Before(a.next) {
			due = append(due, of)
		}
	}
	slices.SortFunc(due, func(x, y connected.Account) int { // new ones go first
		return cmp.Or(k.accounts[x].next.Compare(k.accounts[y].next), x.Compare(y))
	})
	for _, of := range due {
		if !k.places.Start(of.Namespace, maxRequests-k.running) {
			continue
		}
		k.accounts[of].asking = true
		k.running++
		requests.Go(func() {
			within, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			allowed, err := k.Reviewer.MayListSecrets(within, of.Namespace, of.Name)
			k.results <- result{of, allowed, err} // has room for all that run
		})
	}
}

// finish takes in a result.
func (k *Keeper) finish(r result, now time.Time) {
	k.running--
	k.places.End(r.of.Namespace)
	a := k.accounts[r.of]
	if a == nil {
		return // no proxy asks any more
	}
	a.asking = false
	is := state.Permission{Allowed: r.allowed}
	switch r.err {
	case nil:
		a.good, a.pause = now, 0
		a.next = now.Add(jitter(refusedFor))
		if r.allowed {
			a.next = now.Add(jitter(allowedFor))
		}
	default:
		a.pause = min(max(2*a.pause, firstPause), longestPause)
		a.next = now.Add(jitter(a.pause))
		if is = a.told; a.good.IsZero() || now.Sub(a.good) > staleFor {
			is = state.Permission{Trouble: r.err.Error()}
		}
		if a.pause == firstPause {
			k.Log.Warn("cannot find out whether a service account may list Secrets", "account", r.of.Namespace+"/"+r.of.Name, "error", r.err)
		}
	}
	if is == a.told && a.known {
		return
	}
	a.told, a.known = is, true
	k.apply([]source.Event{state.PermissionEvent(r.of, &is)})
}

// jitter shortens a time by up to a tenth, so that not all requests come at once.
func jitter(d time.Duration) time.Duration { return d - rand.N(cmp.Or(d/10, 1)) }
