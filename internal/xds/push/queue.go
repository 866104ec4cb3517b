package push

import (
	"container/list"
	"sync"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/store"
)

// job is one thing to be done in a commit.
type job struct {
	rows    int
	write   func(tx *store.Txn) // may be nil
	after   func()              // runs when the commit and what it dirtied is done; may be nil
	changes *changes            // of a source; nil for every other job

	// report says that the job only tells users about a proxy: nothing that proxies are sent depends on it.
	report bool

	in *list.List    // the list of the queue that the job is in
	at *list.Element // place in that; nil once it was taken
}

// queue is what waits for the loop, in the order of arrival, reports apart from everything else. Its size is bounded by what
// there is, not by what happens: of a source it holds at most one event per object and problem, of a proxy what connecting
// and leaving takes. The methods may be called from any goroutine and never wait.
type queue struct {
	mu      sync.Mutex
	jobs    list.List // of *job
	reports list.List // of *job
	// open are the jobs that hold changes of a source, in order. No object and no problem is in two of them.
	open map[string][]*job
	wake chan struct{}
	most int // about as many rows are taken at a time
}

func newQueue() *queue {
	return &queue{open: make(map[string][]*job), wake: make(chan struct{}, 1), most: commitRows}
}

// add puts a job behind all others of its list.
func (q *queue) add(j *job) {
	q.mu.Lock()
	q.push(j)
	q.mu.Unlock()
	q.signal()
}

func (q *queue) push(j *job) {
	j.in = &q.jobs
	if j.report {
		j.in = &q.reports
	}
	j.at = j.in.PushBack(j)
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// drop takes a job out, and reports whether it was still waiting.
func (q *queue) drop(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.remove(j)
}

func (q *queue) remove(j *job) bool {
	if j == nil || j.at == nil {
		return false
	}
	j.in.Remove(j.at)
	j.at = nil
	return true
}

// edit runs fn while no job is taken.
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

// take returns what has arrived, as far as one commit takes it. Thousands of proxies may reject something at a time, and
// what comes after their reports does not wait for them: reports take what room the other jobs leave, and one at least.
func (q *queue) take() []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	var taken []*job
	rows := 0
	for q.jobs.Len() > 0 && rows < q.most {
		taken, rows = q.takeFirst(&q.jobs, taken, rows)
	}
	for one := true; q.reports.Len() > 0 && (one || rows < q.most); one = false {
		taken, rows = q.takeFirst(&q.reports, taken, rows)
	}
	return taken
}

// takeFirst adds the first job of a list to what is taken.
func (q *queue) takeFirst(from *list.List, taken []*job, rows int) ([]*job, int) {
	j := from.Front().Value.(*job)
	q.remove(j)
	if j.changes != nil {
		of := j.changes.source
		if q.open[of] = q.open[of][1:]; len(q.open[of]) == 0 {
			delete(q.open, of)
		}
	}
	return append(taken, j), rows + j.rows
}

// apply takes in a batch. It becomes visible as a whole, not before the source's earlier ones, and not before anything that came
// from the source ahead of it: what it has in common with waiting changes joins these with all that waits behind them.
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
	if last := len(open) - 1; first > last && last >= 0 && open[last].rows+len(b.Events)+len(b.Problems) <= q.most {
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

// changes are batches of one source put together: of each object and problem the last word.
type changes struct {
	source   string
	batches  int
	synced   bool
	mesh     *meshconfig.MeshConfig
	events   []source.Event
	problems []source.ProblemEvent
	// Places in events and problems, once a second batch has come.
	object  map[api.Key]int
	problem map[omap.Name]int
}

func newChanges(b source.Batch) *changes {
	return &changes{source: b.Source, batches: 1, synced: b.Synced, mesh: b.Mesh, events: b.Events, problems: b.Problems}
}

func (c *changes) rows() int { return 1 + len(c.events) + len(c.problems) }

func (c *changes) batch() source.Batch {
	return source.Batch{Source: c.source, Synced: c.synced, Mesh: c.mesh, Events: c.events, Problems: c.problems}
}

// index makes the places known.
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

// add puts a later batch on top.
func (c *changes) add(b source.Batch) {
	c.index()
	c.batches++
	c.synced = c.synced || b.Synced
	if b.Mesh != nil {
		c.mesh = b.Mesh
	}
	for _, e := range b.Events {
		c.addEvent(e)
	}
	for _, p := range b.Problems {
		c.addProblem(p)
	}
}

func (c *changes) addEvent(e source.Event) {
	i, ok := c.object[e.Key]
	if !ok {
		c.object[e.Key] = len(c.events)
		c.events = append(c.events, e)
		return
	}
	if was := c.events[i]; e.Object != nil || !was.Added {
		e.Added = was.Added && e.Object != nil
		c.events[i] = e
		return
	}
	// It came and went while nobody looked.
	last := len(c.events) - 1
	c.events[i] = c.events[last]
	c.object[c.events[i].Key] = i
	c.events = c.events[:last]
	delete(c.object, e.Key)
}

// addProblem puts the coming or going of a problem on top. A problem comes and goes by turns, so the two together are nothing.
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
