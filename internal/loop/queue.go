package loop

import (
	"container/list"
	"sync"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/source"
)

// job is a unit of work for one commit.
type job struct {
	// rows is about what the job costs the commit, in rows.
	rows int
	// write makes the job's changes of rows; it may be nil.
	write func(tx *store.Txn)
	// after runs when the commit is done and the cells that depend on it have run; it may be nil.
	after func()
	// changes are the changes of a source; nil for every other job.
	changes *changes
	// report is set if the job only informs users about a proxy. Nothing that proxies are sent depends on such a job.
	report bool

	// list is the list of the queue that the job waits in, and element is its place there. element is nil once the job was
	// taken or removed.
	list    *list.List
	element *list.Element
}

// waiting reports whether the job is in the queue.
func (j *job) waiting() bool { return j != nil && j.element != nil }

// queue has the jobs that wait for the loop, in the order of arrival, with reports in a list of their own. Its size is bounded
// by the number of objects and proxies, not by the number of events: for a source it has at most one event per object and
// problem, and for a proxy at most one job of each kind. The methods may be called from any goroutine and never wait.
type queue struct {
	mu sync.Mutex
	// jobs and reports are lists of *job.
	jobs    list.List
	reports list.List
	// open are the jobs with changes, by source, in the order of arrival. No object and no problem is in two of them.
	open map[string][]*job
	// wake has a token if jobs may have arrived since the loop last looked.
	wake chan struct{}
	// maxRows is about how many rows the loop takes at a time.
	maxRows int
}

// waitingJob is the last job of one kind that a connection has queued. While that job waits, further work joins it, so that at
// most one job of the kind waits. The zero value has no job.
type waitingJob[T any] struct {
	job *job
	// work is what the job will do. It must not change after the loop has taken the job.
	work *T
}

// add changes the work of the job that waits. If none waits, it queues the one that newJob makes of new work. change returns what
// the job costs now, in rows.
func (w *waitingJob[T]) add(q *queue, newJob func(work *T) *job, change func(work *T) (rows int)) {
	q.edit(func() {
		if !w.job.waiting() {
			w.work = new(T)
			w.job = newJob(w.work)
			q.push(w.job)
		}
		w.job.rows = change(w.work)
	})
}

func newQueue() *queue {
	return &queue{open: make(map[string][]*job), wake: make(chan struct{}, 1), maxRows: commitRows}
}

// add appends a job to its list.
func (q *queue) add(j *job) {
	q.mu.Lock()
	q.push(j)
	q.mu.Unlock()
	q.signal()
}

// push is add for a caller that holds q.mu and wakes the loop.
func (q *queue) push(j *job) {
	j.list = &q.jobs
	if j.report {
		j.list = &q.reports
	}
	j.element = j.list.PushBack(j)
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// drop removes a job and reports whether it was waiting.
func (q *queue) drop(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.remove(j)
}

// remove is drop for a caller that holds q.mu.
func (q *queue) remove(j *job) bool {
	if !j.waiting() {
		return false
	}
	j.list.Remove(j.element)
	j.element = nil
	return true
}

// edit runs fn while it holds q.mu, so that no job is taken, and then wakes the loop.
func (q *queue) edit(fn func()) {
	q.mu.Lock()
	fn()
	q.mu.Unlock()
	q.signal()
}

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.jobs.Len()+q.reports.Len() == 0
}

// take removes and returns the jobs of the next commit. Thousands of proxies may reject something at the same time, and other
// jobs must not wait behind their reports. So reports only fill the room that other jobs leave, but at least one goes with
// each commit.
func (q *queue) take() []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	var taken []*job
	rows := 0
	for q.jobs.Len() > 0 && rows < q.maxRows {
		taken, rows = q.takeFirst(&q.jobs, taken, rows)
	}
	for one := true; q.reports.Len() > 0 && (one || rows < q.maxRows); one = false {
		taken, rows = q.takeFirst(&q.reports, taken, rows)
	}
	return taken
}

// takeFirst moves the first job of a list to taken, whose jobs have rows so far.
func (q *queue) takeFirst(from *list.List, taken []*job, rows int) ([]*job, int) {
	j := from.Front().Value.(*job)
	q.remove(j)
	if j.changes != nil {
		name := j.changes.source
		if q.open[name] = q.open[name][1:]; len(q.open[name]) == 0 {
			delete(q.open, name)
		}
	}
	return append(taken, j), rows + j.rows
}

// apply queues a batch. A batch becomes visible as a whole, and not before earlier batches of its source. If it changes an object
// or problem that a waiting job of the source changes, it joins that job, together with all jobs of the source behind it.
func (q *queue) apply(b source.Batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.signal()
	open := q.open[b.Source]
	first := len(open)
	for i, j := range open {
		if j.changes.overlaps(&b) {
			first = i
			break
		}
	}
	if last := len(open) - 1; first > last && last >= 0 && open[last].rows+len(b.Events)+len(b.Problems) <= q.maxRows {
		first = last
	}
	if first == len(open) {
		j := &job{changes: newChanges(b)}
		j.rows = j.changes.rows()
		q.push(j)
		q.open[b.Source] = append(open, j)
		return
	}
	j := open[first]
	for _, later := range open[first+1:] {
		j.changes.add(later.changes.batch())
		j.changes.batches += later.changes.batches - 1
		q.remove(later)
	}
	q.open[b.Source] = open[:first+1]
	j.changes.add(b)
	j.rows = j.changes.rows()
}

// changes are batches of one source that were joined. They have one event per object and problem, which combines all events
// of the batches.
type changes struct {
	source string
	// batches is the number of batches that were joined.
	batches  int
	synced   bool
	mesh     *meshconfig.MeshConfig
	networks *meshconfig.MeshNetworks
	events   []source.Event
	problems []source.ProblemEvent
	// object and problem are the indexes of events and problems. They are nil until a second batch arrives.
	object  map[api.Key]int
	problem map[omap.Name]int
}

func newChanges(b source.Batch) *changes {
	return &changes{source: b.Source, batches: 1, synced: b.Synced, mesh: b.Mesh, networks: b.Networks, events: b.Events, problems: b.Problems}
}

// rows is what the changes cost a commit.
// keys returns the keys of the changed objects.
func (c *changes) keys() []api.Key {
	keys := make([]api.Key, len(c.events))
	for i, e := range c.events {
		keys[i] = e.Key
	}
	return keys
}

func (c *changes) rows() int { return 1 + len(c.events) + len(c.problems) }

func (c *changes) batch() source.Batch {
	return source.Batch{Source: c.source, Synced: c.synced, Mesh: c.mesh, Networks: c.networks, Events: c.events, Problems: c.problems}
}

// index fills object and problem.
func (c *changes) index() {
	if c.object != nil {
		return
	}
	c.object, c.problem = make(map[api.Key]int, len(c.events)), make(map[omap.Name]int, len(c.problems))
	for i, e := range c.events {
		c.object[e.Key] = i
	}
	for i, p := range c.problems {
		c.problem[omap.Name(p.Problem.OutputName())] = i
	}
}

// overlaps reports whether the batch changes an object or problem that c changes.
func (c *changes) overlaps(b *source.Batch) bool {
	c.index()
	for _, e := range b.Events {
		if _, ok := c.object[e.Key]; ok {
			return true
		}
	}
	for _, p := range b.Problems {
		if _, ok := c.problem[omap.Name(p.Problem.OutputName())]; ok {
			return true
		}
	}
	return false
}

// add joins a later batch.
func (c *changes) add(b source.Batch) {
	c.index()
	c.batches++
	c.synced = c.synced || b.Synced
	if b.Mesh != nil {
		c.mesh = b.Mesh
	}
	if b.Networks != nil {
		c.networks = b.Networks
	}
	for _, e := range b.Events {
		c.addEvent(e)
	}
	for _, p := range b.Problems {
		c.addProblem(p)
	}
}

// addEvent joins a later event.
func (c *changes) addEvent(e source.Event) {
	i, ok := c.object[e.Key]
	if !ok {
		c.object[e.Key] = len(c.events)
		c.events = append(c.events, e)
		return
	}
	if was := c.events[i]; !e.Removed() || !was.Added {
		e.Added = was.Added && !e.Removed()
		c.events[i] = e
		return
	}
	// The object was added and deleted while both events waited.
	last := len(c.events) - 1
	c.events[i] = c.events[last]
	c.object[c.events[i].Key] = i
	c.events = c.events[:last]
	delete(c.object, e.Key)
}

// addProblem joins a later event of a problem. A problem is raised and withdrawn alternately, so two events cancel each other.
func (c *changes) addProblem(p source.ProblemEvent) {
	name := omap.Name(p.Problem.OutputName())
	i, ok := c.problem[name]
	if !ok {
		c.problem[name] = len(c.problems)
		c.problems = append(c.problems, p)
		return
	}
	if c.problems[i].Gone == p.Gone {
		return
	}
	last := len(c.problems) - 1
	c.problems[i] = c.problems[last]
	c.problem[omap.Name(c.problems[i].Problem.OutputName())] = i
	c.problems = c.problems[:last]
	delete(c.problem, name)
}
