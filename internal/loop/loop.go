// Package loop is the loop between sources and streams: the one goroutine that owns the store and the graph.
//
// Each change (a batch of a source, a proxy that connects or leaves, a rejection) is a job in a queue, and its sender does
// not wait. The loop takes the jobs that have arrived as one commit, recomputes what changed, and delivers the new states of
// proxy classes to their streams. This group commit takes the place of a debounce timer: the first event is processed at once,
// and events that arrive during a commit join the next one. Reports about proxies go with each commit as far as there is room.
// First builds of new classes run in slices between commits.
//
// The loop does one thing at a time: a commit, a slice of a first build, a delivery of states, or an inspection. It never
// sends and never waits for a stream. A job that panics affects only that job.
//
// The package owns the rows of connected proxies, of their rejections and of their requests by name, the last accounts of Services, and the classes.
// Loop.Run is its one goroutine; all other methods may be called from any goroutine.
package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pilotmesh/pilot/internal/ads/arrivals"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	classes "github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/mcp"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// sliceCells is the number of cells of first builds that run before the loop checks its queue again. They take about a
	// millisecond.
	sliceCells = 25
	// maxBuildCells is the largest number of cells of first builds that run behind one commit. They take a few milliseconds.
	maxBuildCells = 125
	// rowsPerCell is the number of rows that cost a commit about as much as one cell.
	rowsPerCell = 4
	// commitRows is about the largest number of rows that one commit writes. The rest goes with the next one.
	commitRows = 5000
	// classGrace is how long a class without proxies is kept, so that it need not be built again for a proxy that restarts.
	classGrace = time.Minute
)

// Settings of a loop.
type Settings struct {
	// Sources are the names of the configured sources; proxies are admitted once each has listed everything.
	Sources []string
	// MinInterval is the minimum time between two commits. The first commit after a pause is not delayed.
	MinInterval time.Duration
	Log         *slog.Logger
	// OpenConfiguration is true if clients that have not shown who they are may read configuration.
	OpenConfiguration bool
	// Refused, if set, is called for each proxy that claims another identity than it has proved.
	Refused func(ctx context.Context, reason error)
	// Visits, if set, logs which proxies come and go.
	Visits *arrivals.Log
	// Observe, if set, is called after every commit, on the loop's goroutine.
	Observe func(Commit)
}

// Commit says what one commit did.
type Commit struct {
	Revision store.Revision
	At       time.Time
	// Duration is the time until all states were delivered to the streams.
	Duration time.Duration
	// Jobs is the number of batches, connects, rejections and so on that the commit combined.
	Jobs int
	// Objects is the number of events by source.
	Objects map[string]int
	// Changed are the objects, sorted, if they are few enough for one line of a log (see maxNamed).
	Changed []api.Key
	// Cells is the number of cells that ran, by query.
	Cells map[string]int
	// Classes is the number of class states that changed, and Streams the number of streams that received them.
	Classes int
	Streams int
}

// Loop owns the store and the graph.
type Loop struct {
	settings Settings
	tables   *state.Tables
	graph    *query.Graph
	queries  *classes.Queries
	// synced is closed when every source has listed everything.
	synced chan struct{}
	queue  *queue
	// kept start to observe what Keep keeps, and return a function that ends it.
	kept []func() (release func())
	// next is the number of the last connection.
	next atomic.Uint64

	// The following fields belong to the loop's goroutine.

	// ready is set when synced is closed.
	ready   bool
	conns   map[string]*connection
	classes map[proxy.Class]*class
	// moved, answers and changed are what the graph has published and the loop has not delivered: classes of connections,
	// answers to wants, and states of classes.
	moved    []move
	answers  []newAnswer
	changed  []*class
	problems state.Problems
	// accounts are the accounts of the endpoints of Services that have rows, or get them with the next commit.
	accounts omap.Map[omap.Name, state.Accounts]

	views      map[mcp.View]*view
	faults     faults
	rejections *rejectionIndex
	shared     shared
	// writes are the rows that the loop itself adds to the next commit.
	writes []func(tx *store.Txn)
}

// New returns a loop over tables, whose queries are defined on graph.
func New(tables *state.Tables, graph *query.Graph, q *classes.Queries, s Settings) *Loop {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	return &Loop{
		settings: s, tables: tables, graph: graph, queries: q,
		synced: make(chan struct{}), queue: newQueue(),
		conns: make(map[string]*connection), classes: make(map[proxy.Class]*class), views: make(map[mcp.View]*view),
		faults: faults{rows: make(map[query.ID]faultRow), cells: make(map[connected.FaultKey][]query.ID)}, rejections: newRejectionIndex(), shared: shared{},
	}
}

// Apply implements source.Sink. It queues a batch and never blocks. The last event of each object is never lost.
func (l *Loop) Apply(b source.Batch) { l.queue.apply(b) }

// Queries returns the queries of the control plane.
func (l *Loop) Queries() *classes.Queries { return l.queries }

// Synced is closed once every source has listed everything and the result is committed.
func (l *Loop) Synced() <-chan struct{} { return l.synced }

// Run runs the loop until ctx is cancelled. It must be called once.
func (l *Loop) Run(ctx context.Context) error {
	defer l.queries.Problems.Observe(classes.All{}, func(all state.Problems) { l.problems = all })()
	defer l.queries.Services.Accounts.Observe(struct{}{}, l.noteAccounts)()
	for _, observe := range l.kept {
		defer observe()()
	}
	grace := time.NewTicker(classGrace / 4)
	defer grace.Stop()
	var earliest time.Time // the earliest time of the next commit
	budget := 0            // the number of cells of first builds that may run now, because a commit has delayed them
	more := true           // whether first builds or lookups are left to do; at first the values of controllers are
	for ctx.Err() == nil {
		if !more && l.queue.empty() {
			select {
			case <-ctx.Done():
				return nil
			case <-grace.C:
				l.releaseClasses(time.Now())
				more = true
				continue
			case <-l.queue.wake:
			}
		}
		if wait := time.Until(earliest); wait <= 0 {
			if jobs := l.queue.take(); len(jobs) > 0 || len(l.writes) > 0 {
				earliest = time.Now().Add(l.settings.MinInterval)
				budget = l.commit(jobs)
			}
		} else if !l.graph.Pending() {
			l.pause(ctx, wait)
			continue
		}
		l.build(budget)
		budget = 0
		l.lookUp()
		if more = l.graph.Pending() || l.hasLookups(); more { // Delivery may have created new classes.
			runtime.Gosched() // Goroutines with little to do should not wait for first builds.
		}
	}
	return nil
}

// pause waits until the next commit is allowed.
func (l *Loop) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// build runs first builds: at least one slice, and up to budget cells. The budget is the cost of the commit before, so that a
// stream of commits without pauses cannot delay a new class for ever.
func (l *Loop) build(budget int) {
	for pending := true; pending; budget -= sliceCells {
		pending = l.graph.Slice(sliceCells) && budget > sliceCells
		l.deliver(nil)
	}
}

// commit runs all jobs as one revision and delivers what changed. It returns the cost in cells, at most maxBuildCells.
func (l *Loop) commit(jobs []*job) (cost int) {
	info, events := Commit{At: time.Now(), Objects: map[string]int{}}, 0
	before := l.graph.Revision()
	info.Revision = l.graph.Commit(func(tx *store.Txn) {
		for _, j := range jobs {
			info.Jobs++
			cost += j.rows
			if c := j.changes; c != nil {
				info.Jobs += c.batches - 1
				info.Objects[c.source] += len(c.events)
				events += len(c.events)
				if events <= maxNamed {
					info.Changed = append(info.Changed, c.keys()...)
				}
			}
			l.write(tx, j)
		}
		cost /= rowsPerCell
		for _, write := range l.writes {
			write(tx)
		}
		l.writes = nil
	})
	info.Changed = named(info.Changed, events)
	l.deliver(&info)
	for _, j := range jobs {
		l.after(j)
	}
	l.deliver(&info) // What the jobs observed may already have a result.
	if !l.ready && l.tables.Synced(l.settings.Sources...) {
		l.ready = true
		close(l.synced)
	}
	if info.Revision == before {
		return min(cost, maxBuildCells)
	}
	info.Duration = time.Since(info.At)
	info.Cells = l.graph.Cost()
	if l.settings.Observe != nil {
		l.settings.Observe(info)
	}
	for _, n := range info.Cells {
		cost += n
	}
	return min(cost, maxBuildCells)
}

// maxNamed is the largest number of objects of a commit that Commit.Changed lists.
const maxNamed = 5

// named returns the keys of a commit of so many events, sorted; none if they are too many.
func named(keys []api.Key, events int) []api.Key {
	if events > maxNamed {
		return nil
	}
	slices.SortFunc(keys, api.Key.Compare)
	return slices.Compact(keys)
}

// write runs one job's writes. A panic is a bug in the code that splits objects into rows; only this job is lost.
func (l *Loop) write(tx *store.Txn, j *job) {
	defer func() {
		name := ""
		if j.changes != nil {
			name = j.changes.source
		}
		if p := recover(); p != nil {
			l.settings.Log.Error("a write to the store panicked; the rest of its batch is lost",
				"source", name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	if j.changes != nil {
		l.tables.Apply(tx, j.changes.batch())
	}
	if j.write != nil {
		j.write(tx)
	}
}

// after runs what a job does after its commit. A panic affects only this job.
func (l *Loop) after(j *job) {
	defer func() {
		if p := recover(); p != nil {
			l.settings.Log.Error("a job of the loop panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	if j.after != nil {
		j.after()
	}
}

// View is the store and the graph between two commits, as Inspect shows them.
type View struct {
	Tables   *state.Tables
	Graph    *query.Graph
	Queries  *classes.Queries
	Problems state.Problems
	// Classes is the number of streams by class.
	Classes map[proxy.Class]int
	states  func(proxy.Class) *resource.State
}

// Class is the class of a connection, by its ID; false if the connection has left.
func (v *View) Class(connection string) (proxy.Class, bool) {
	return v.Queries.Class.Get(v.Graph.Glance(), connection)
}

// State is the last published state of a class; nil if there is none yet.
func (v *View) State(c proxy.Class) *resource.State { return v.states(c) }

// Inspector shows the state of the mesh. *Loop implements it.
type Inspector interface {
	Inspect(ctx context.Context, fn func(*View)) error
}

// Look returns what fn finds in the state of the mesh; see Loop.Inspect. If ctx ends first, fn may still run later, and its result
// is dropped.
func Look[T any](ctx context.Context, in Inspector, fn func(*View) T) (T, error) {
	found := make(chan T, 1)
	if err := in.Inspect(ctx, func(v *View) { found <- fn(v) }); err != nil {
		var none T
		return none, fmt.Errorf("looking at the state: %w", err)
	}
	return <-found, nil
}

// Inspect runs fn on the loop's goroutine between two commits and waits for it. fn must be quick and must not change anything.
// If fn panics, Inspect returns an error.
func (l *Loop) Inspect(ctx context.Context, fn func(*View)) error {
	done := make(chan struct{})
	failed := true
	j := &job{after: func() {
		defer close(done)
		v := &View{Tables: l.tables, Graph: l.graph, Queries: l.queries, Problems: l.problems, Classes: make(map[proxy.Class]int)}
		for key, c := range l.classes {
			v.Classes[key] = len(c.conns)
		}
		v.states = func(key proxy.Class) *resource.State {
			if c := l.classes[key]; c != nil {
				return c.state
			}
			return nil
		}
		fn(v)
		failed = false
	}}
	l.queue.add(j)
	select {
	case <-done:
		if failed {
			return errors.New("inspect the state of the mesh: internal error, see the control plane's log")
		}
		return nil
	case <-ctx.Done():
		l.queue.drop(j)
		return fmt.Errorf("inspect the state of the mesh: %w", ctx.Err())
	}
}
