// Package push is the loop between sources and streams: the one goroutine that owns the store and the graph.
//
// Everything that wants to change the world (a source's batch, a proxy that connects or leaves, a rejection) queues a job
// and goes on. The loop takes all that has arrived as one commit, recomputes what changed, and hands the new states
// of proxy classes to their streams. Group commit is the debounce: the first event goes at once, what arrives while
// the kernel works joins the next commit. What proxies report about themselves goes with what else there is, as far as there is
// room. First builds of new classes run in slices between commits.
//
// Four things happen in the loop, one at a time: a commit; a slice of a first build; states are handed out; somebody
// inspects. It never sends, never waits for a stream, and a job that panics costs that job only.
//
// It owns the connected proxies as rows, the classes they make up, and the sets of pins. Loop.Run is its one
// goroutine; all other methods may be called from any. It must not import Envoy's protos or Kubernetes.
package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/store"
	classes "github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// sliceCells is how many cells of first builds run before the input is looked at again: about a millisecond.
	sliceCells = 25
	// maxShare is the most that runs of them behind a commit, whatever that cost: a few milliseconds.
	maxShare = 125
	// rowsPerCell is how many rows cost a commit about what a cell costs.
	rowsPerCell = 4
	// commitRows is about how many objects one commit takes; what is left joins the next one.
	commitRows = 5000
	// classGrace is how long a class without proxies is kept: proxies that restart find it warm.
	classGrace = time.Minute
)

// Settings of a loop.
type Settings struct {
	// Sources are the names of the configured sources; proxies are admitted once each has listed everything.
	Sources []string
	// MinInterval is the least time between two commits; the first after a pause is not delayed. Zero is none.
	MinInterval time.Duration
	Log         *slog.Logger
	// Observe, if set, hears of every commit, on the loop's goroutine.
	Observe func(Commit)
}

// Commit says what one commit did.
type Commit struct {
	Revision store.Revision
	At       time.Time
	Duration time.Duration // until all states were handed to the streams
	Jobs     int           // batches, connects, rejections ... that were taken together
	Objects  map[string]int
	Cells    map[string]int // cells run, by query
	Classes  int            // class states that changed
	Streams  int            // streams that were told
}

// Loop is the one owner of the store and the graph.
type Loop struct {
	settings Settings
	tables   *state.Tables
	graph    *query.Graph
	queries  *classes.Queries
	synced   chan struct{}
	queue    *queue
	next     atomic.Uint64 // connection numbers

	// Of the loop's goroutine only:
	ready    bool
	conns    map[string]*connection
	classes  map[proxy.Class]*class
	moved    []move // connections whose class was published and not yet acted upon
	answered []answered
	fresh    []*class // classes whose state was published and not yet handed out
	problems state.Problems
	faults   faults
	ledger   *ledger
	notes    []func(tx *store.Txn) // rows that the loop itself has for the next commit
}

// New returns a loop over tables, whose queries are defined on graph.
func New(tables *state.Tables, graph *query.Graph, q *classes.Queries, s Settings) *Loop {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	return &Loop{
		settings: s, tables: tables, graph: graph, queries: q,
		synced: make(chan struct{}), queue: newQueue(),
		conns: make(map[string]*connection), classes: make(map[proxy.Class]*class),
		faults: faults{rows: make(map[query.ID]faultRow), cells: make(map[state.FaultKey][]query.ID)}, ledger: newLedger(),
	}
}

// Apply implements source.Sink: it queues a batch. It never blocks, and nothing is lost: of each object the last word stays.
func (l *Loop) Apply(b source.Batch) { l.queue.apply(b) }

// Synced is closed once every source has listed everything and the result is committed.
func (l *Loop) Synced() <-chan struct{} { return l.synced }

// Run works until ctx is cancelled. It is called once.
func (l *Loop) Run(ctx context.Context) error {
	defer l.queries.Problems.Observe(classes.All{}, func(all state.Problems) { l.problems = all })()
	grace := time.NewTicker(classGrace / 4)
	defer grace.Stop()
	var earliest time.Time // of the next commit
	share := 0             // what first builds may cost at once, because a commit has kept them waiting
	more := false          // first builds are under way, or there is something to look into
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
			if jobs := l.queue.take(); len(jobs) > 0 || len(l.notes) > 0 {
				earliest = time.Now().Add(l.settings.MinInterval)
				share = l.commit(jobs)
			}
		} else if !l.graph.Pending() {
			l.pause(ctx, wait)
			continue
		}
		l.build(share)
		share = 0
		l.lookInto()
		if more = l.graph.Pending() || l.curious(); more { // what was handed out may have made new classes
			runtime.Gosched() // those who have little to do go first
		}
	}
	return nil
}

// pause waits before a commit that would follow another too closely.
func (l *Loop) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// build runs first builds: a slice, or as much as the commits before it have cost. A stream of commits that leaves no time
// between them could keep a new class waiting for ever otherwise.
func (l *Loop) build(share int) {
	for pending := true; pending; share -= sliceCells {
		pending = l.graph.Slice(sliceCells) && share > sliceCells
		l.handOut(nil)
	}
}

// commit makes all jobs one revision and hands out what changed. It returns what that has cost, in cells.
func (l *Loop) commit(jobs []*job) (cost int) {
	info := Commit{At: time.Now(), Objects: map[string]int{}}
	before := l.graph.Revision()
	info.Revision = l.graph.Commit(func(tx *store.Txn) {
		for _, j := range jobs {
			info.Jobs++
			cost += j.rows
			if c := j.changes; c != nil {
				info.Jobs += c.batches - 1
				info.Objects[c.source] += len(c.events)
			}
			l.write(tx, j)
		}
		cost /= rowsPerCell
		for _, note := range l.notes {
			note(tx)
		}
		l.notes = nil
	})
	l.handOut(&info)
	for _, j := range jobs {
		l.after(j)
	}
	l.handOut(&info) // what the jobs observed may be known already
	if !l.ready && l.tables.Synced(l.settings.Sources...) {
		l.ready = true
		close(l.synced)
	}
	if info.Revision == before {
		return min(cost, maxShare)
	}
	info.Duration = time.Since(info.At)
	info.Cells = l.graph.Cost()
	if l.settings.Observe != nil {
		l.settings.Observe(info)
	}
	for _, n := range info.Cells {
		cost += n
	}
	return min(cost, maxShare)
}

// write performs one job's writes. A panic is a bug in how rows are made of objects: it costs this job.
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

// after performs what a job does behind its commit. A panic costs this job.
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

// View is what Inspect shows: the store and the graph between two commits.
type View struct {
	Tables   *state.Tables
	Graph    *query.Graph
	Queries  *classes.Queries
	Problems state.Problems
	Classes  map[proxy.Class]int // streams by class
	states   func(proxy.Class) *resource.State
}

// Class is the class of a connection, by the name the loop gave it; false if it has left.
func (v *View) Class(connection string) (proxy.Class, bool) {
	return v.Queries.Class.Get(v.Graph.Glance(), connection)
}

// State is the present state of a class; nil if it has none yet.
func (v *View) State(c proxy.Class) *resource.State { return v.states(c) }

// Inspect runs fn on the loop's goroutine between two commits and waits for it. fn must be quick and change nothing. Its panic
// is an error.
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
