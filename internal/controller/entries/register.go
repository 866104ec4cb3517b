// Package entries makes WorkloadEntries for connected proxies that ask for it, and removes them when the proxies are gone. The
// steps follow from rows (view/registration); this package takes them.
//
// Each replica takes care of the entries of its own proxies. An entry names its replica, so when a proxy reconnects to another one,
// that one adopts the entry. A proxy that disconnects has some time to come back (Options.Grace) before its replica deletes the entry. The
// leader takes care of entries whose replica is gone.
//
// Invariants: A step is decided on the entry as the API server has it, and is refused if the entry changes before the step is written. An entry
// that no control plane has made is never touched. A proxy that cannot be registered is served all the same, and the reason is a Problem.
//
// Registrar.Run is the only goroutine. Lead may run in another one.
package entries

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/controller/schedule"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/registration"
)

// Live is a WorkloadEntry as the API server has it.
type Live struct {
	// Exists is false if there is none. Registered.Group is empty if no control plane has made it.
	Exists     bool
	Registered state.Registered
}

// Target is where entries are written.
type Target interface {
	// Step reads an entry, calls decide with it, and takes the returned step. If the entry changes in between, the error wraps
	// ErrChanged.
	Step(ctx context.Context, k api.Key, decide func(Live) Step) error
}

// Options of a registrar.
type Options struct {
	// Mesh is a loop that does not run yet.
	Mesh   *loop.Loop
	Target Target
	// Sink receives the problems of entries that cannot be written.
	Sink source.Sink
	// Self names this replica in entries.
	Self string
	// Grace is how long an entry stays after its proxy has disconnected.
	Grace time.Duration
	// Orphan is how long an entry stays after its replica is gone, before it counts as disconnected (default 2 minutes). In this
	// time its proxy connects to another replica.
	Orphan time.Duration
	Log    *slog.Logger
}

const (
	defaultOrphan = 2 * time.Minute
	// firstPause and longestPause limit the time to the next attempt after a failure.
	firstPause, longestPause = time.Second, time.Minute
)

// Registrar registers proxies.
type Registrar struct {
	o     Options
	kept  *loop.Kept[registration.Map]
	start time.Time
	// leading is since when this replica is the leader, in Unix nanoseconds; 0 if it is not. turned has a token after it has changed.
	leading atomic.Int64
	turned  chan struct{}

	// The following fields belong to Run.

	known registration.Map
	due   schedule.Agenda[api.Key]
	// isPod is true if this replica is a pod, so that other replicas are known by their pods.
	isPod    bool
	problems map[api.Key]api.Problem
}

// New returns a registrar.
func New(o Options) *Registrar {
	o.Orphan = cmp.Or(o.Orphan, defaultOrphan)
	return &Registrar{
		o: o, kept: loop.Keep(o.Mesh, o.Mesh.Queries().Registrations.Observe, registration.All{}), start: time.Now(), turned: make(chan struct{}, 1),
		due:      schedule.Agenda[api.Key]{Compare: api.Key.Compare, Pauses: schedule.Pauses{First: firstPause, Longest: longestPause}},
		problems: map[api.Key]api.Problem{},
	}
}

// sourceName is the name of the source of the problems that the registrar reports.
const sourceName = "registration"

// Lead makes Run do the work of the leader, too, until ctx ends.
func (r *Registrar) Lead(ctx context.Context) {
	turn := func(since int64) {
		r.leading.Store(since)
		select {
		case r.turned <- struct{}{}:
		default:
		}
	}
	turn(time.Now().UnixNano())
	<-ctx.Done()
	turn(0)
}

// Run registers proxies until ctx ends. Its registrations stay, because its proxies are about to connect to another replica.
func (r *Registrar) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.look(ctx); err == nil {
			r.work(ctx)
		}
		alarm := time.NewTimer(min(r.due.Wait(), longestPause))
		select {
		case <-ctx.Done():
		case <-alarm.C:
		case <-r.kept.Changed():
		case <-r.turned:
			for _, f := range r.known.All() {
				r.due.Touch(f.Key)
			}
		}
		alarm.Stop()
	}
}

// look finds the entries about which something has changed.
func (r *Registrar) look(ctx context.Context) error {
	type seen struct {
		all   registration.Map
		isPod bool
	}
	now, err := loop.Look(ctx, r.o.Mesh, func(v *loop.View) seen {
		_, isPod := v.Tables.Kube.Pods.Peek(api.Key{
			Kind: kube.KindPod, Namespace: v.Tables.ControlNamespace(), Name: r.o.Self, Cluster: v.Tables.ClusterID(),
		})
		return seen{r.kept.In(v), isPod}
	})
	if err != nil {
		return err
	}
	for c := range omap.Diff(r.known, now.all) {
		if c.HasNew {
			r.due.Touch(c.New.Key)
		} else {
			r.due.Drop(c.Old.Key)
			r.report(c.Old.Key, api.Problem{}, nil)
		}
	}
	r.known, r.isPod = now.all, now.isPod
	return nil
}

// work takes the steps that are due.
func (r *Registrar) work(ctx context.Context) {
	for _, k := range r.due.Take(math.MaxInt) {
		if ctx.Err() != nil {
			return
		}
		if f, ok := r.known.Get(omap.Name(k.String())); ok {
			r.step(ctx, f)
		} else {
			r.due.Drop(k)
		}
	}
}

// situation returns the inputs of the next step of an entry besides the facts.
func (r *Registrar) situation(k api.Key) circumstances {
	s := circumstances{Self: r.o.Self, Start: r.start, Grace: r.o.Grace, Orphan: r.o.Orphan, Seen: r.due.Since(k), Now: time.Now(), IsPod: r.isPod}
	if since := r.leading.Load(); since != 0 {
		s.Leading = time.Unix(0, since)
	}
	return s
}

// step takes the next step about an entry, if it is time for one.
func (r *Registrar) step(ctx context.Context, f registration.Facts) {
	seen := nextStep(f, Live{Exists: f.Registered.Group != "", Registered: f.Registered}, r.situation(f.Key))
	switch {
	case seen.Action == Nothing && seen.At.IsZero():
		r.due.Drop(f.Key)
		r.report(f.Key, api.Problem{}, nil)
		return
	case seen.Action == Nothing:
		r.due.At(f.Key, seen.At)
		return
	}
	var taken Step
	err := r.o.Target.Step(ctx, f.Key, func(live Live) Step {
		taken = nextStep(f, live, r.situation(f.Key))
		return taken
	})
	if ctx.Err() != nil {
		return
	}
	object := f.Key
	if f.Entry != nil {
		object = f.Entry.Group
	}
	if err == nil && taken.Action == Refuse {
		err = errForeign
	}
	r.report(f.Key, api.Problem{Object: object}, err)
	if err == nil && taken.Action != Nothing {
		r.o.Log.Info("registration", "entry", f.Key.Namespace+"/"+f.Key.Name, "action", taken.Action.String(), "proxy", f.Proxy)
	}
	// A written change comes back as a row. If it does not, or the write failed, the entry is looked at again.
	r.due.Retry(f.Key, longestPause)
}

// report replaces the problem of an entry by one with the error. A nil error ends the problem. ErrChanged is no problem.
func (r *Registrar) report(k api.Key, p api.Problem, err error) {
	was, had := r.problems[k]
	if reason := reasonOf(k, err); reason != "" {
		p.Severity, p.Code, p.Reason = api.Error, "registration-refused", reason
		if had && was == p {
			return
		}
		r.problems[k] = p
		r.o.Log.Warn("a proxy cannot be registered; it is tried again", "entry", k.Namespace+"/"+k.Name, "reason", reason)
		b := source.Batch{Source: sourceName, Synced: true, Problems: []source.ProblemEvent{{Problem: p}}}
		if had {
			b.Problems = append(b.Problems, source.ProblemEvent{Problem: was, Gone: true})
		}
		r.o.Sink.Apply(b)
		return
	}
	if had && err == nil {
		delete(r.problems, k)
		r.o.Sink.Apply(source.Batch{Source: sourceName, Synced: true, Problems: []source.ProblemEvent{{Problem: was, Gone: true}}})
	}
}
