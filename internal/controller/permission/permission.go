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
// Keeper.Run owns everything; package schedule starts a goroutine per request.
package permission

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/controller/fair"
	"github.com/pilotmesh/pilot/internal/controller/schedule"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/run/retry"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/secret"
)

// Name is the name of the source of permissions.
const Name = "secret permissions"

// How long answers count, and the limits of requests.
const (
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
	Sink     source.Sink
	Reviewer Reviewer
	// Cluster is the ID of the cluster, and Want has Secrets of it read, and no others.
	Cluster string
	Want    func([]api.Key)
	Log     *slog.Logger

	asked demand
	// configMaps are the ConfigMaps that proxies ask for and may have, with the namespaces of these proxies.
	configMaps []fair.Want[api.Key]
	requests   schedule.Fetches[connected.Account, account, bool]
	wanted     []api.Key
	problems   []api.Problem
}

// account is the state of a service account whose proxies ask for Secrets.
type account struct {
	secrets []string // the names of the Secrets that its proxies ask for, sorted
	told    state.Permission
	known   bool // an answer was received and passed on
	failing bool
	good    time.Time // when the API server answered last
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

// Keep returns the function that keeps the permissions which proxies of a mesh need, until its context ends. The loop of the mesh does not run yet.
func (k *Keeper) Keep(mesh *loop.Loop) func(context.Context) {
	asked := loop.Want(mesh, "wantedSecrets", demand.equal, func(r *query.Reader, t *state.Tables, _ *class.Queries) demand {
		return demand{t.Asking.Group(r, struct{}{}), t.Extensions.PullSecrets.Group(r, struct{}{}), t.NamedConfigMaps.Group(r, struct{}{})}
	})
	k.prepare()
	return func(ctx context.Context) { k.requests.Run(ctx, asked.Changed(), asked.Then(k.follow), nil) }
}

// prepare sets the policy.
func (k *Keeper) prepare() {
	k.requests = schedule.Fetches[connected.Account, account, bool]{
		Compare: connected.Account.Compare, Pauses: schedule.Pauses{First: firstPause, Longest: longestPause}, Places: maxRequests,
		Fetch: func(ctx context.Context, of connected.Account) (allowed bool, err error) {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return k.Reviewer.MayListSecrets(ctx, of.Namespace, of.Name)
		},
		Done: func(of connected.Account, e *schedule.Entry[account], allowed bool, err error) time.Duration {
			return k.done(of, &e.State, allowed, err)
		},
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

// follow updates the accounts and their Secrets.
func (k *Keeper) follow(asked demand) {
	k.asked = asked
	secrets := k.sort()
	wants := make([]fair.Want[connected.Account], 0, len(secrets))
	for of := range secrets {
		wants = append(wants, fair.Want[connected.Account]{Namespace: of.Namespace, Thing: of})
	}
	var events []source.Event
	for _, of := range k.requests.Follow(wants) {
		events = append(events, state.PermissionEvent(of, nil))
	}
	for of, names := range secrets {
		slices.Sort(names)
		k.requests.Wanted[of].State.secrets = slices.Compact(names)
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
	for _, of := range slices.SortedFunc(maps.Keys(k.requests.Wanted), connected.Account.Compare) {
		a := &k.requests.Wanted[of].State
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

// done takes in an answer of the API server, and returns the time until the next question.
func (k *Keeper) done(of connected.Account, a *account, allowed bool, err error) (again time.Duration) {
	now, is := time.Now(), state.Permission{Allowed: allowed}
	switch {
	case err == nil && allowed:
		a.good, again = now, retry.Early(allowedFor)
	case err == nil:
		a.good, again = now, retry.Early(refusedFor)
	default:
		again = longestPause
		if is = a.told; a.good.IsZero() || now.Sub(a.good) > staleFor {
			is = state.Permission{Trouble: err.Error()}
		}
		if !a.failing {
			k.Log.Warn("cannot find out whether a service account may list Secrets", "account", of.Namespace+"/"+of.Name, "error", err)
		}
	}
	a.failing = err != nil
	if is != a.told || !a.known {
		a.told, a.known = is, true
		k.apply([]source.Event{state.PermissionEvent(of, &is)})
	}
	return again
}
