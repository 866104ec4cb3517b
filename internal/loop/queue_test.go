package loop

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// sourceContent is what a sink knows of a source: hashes of objects, problems, and a part of the settings of the mesh.
type sourceContent struct {
	objects  map[api.Key]omap.Hash
	problems map[api.Problem]bool
	settings map[string]string
}

func newSourceContent() sourceContent {
	return sourceContent{map[api.Key]omap.Hash{}, map[api.Problem]bool{}, map[string]string{}}
}

func (s sourceContent) clone() sourceContent {
	return sourceContent{maps.Clone(s.objects), maps.Clone(s.problems), maps.Clone(s.settings)}
}

func (s sourceContent) equal(o sourceContent) bool {
	return maps.Equal(s.objects, o.objects) && maps.Equal(s.problems, o.problems) && maps.Equal(s.settings, o.settings)
}

func (s sourceContent) take(b source.Batch) {
	for _, e := range b.Events {
		if e.Object == nil {
			delete(s.objects, e.Key)
		} else {
			s.objects[e.Key] = e.Object.Hash
		}
	}
	for _, p := range b.Problems {
		if p.Gone {
			delete(s.problems, p.Problem)
		} else {
			s.problems[p.Problem] = true
		}
	}
	if b.Mesh != nil {
		s.settings["mesh"] = b.Mesh.GetTrustDomain()
	}
	if b.Networks != nil {
		s.settings["networks"] = fmt.Sprint(slices.Sorted(maps.Keys(b.Networks.GetNetworks())))
	}
}

// drawBatch draws a batch of a source that has some content. version distinguishes the objects of the batch from older ones.
func drawBatch(t *rapid.T, has sourceContent, version byte) source.Batch {
	b := source.Batch{Source: "s"}
	for range rapid.IntRange(0, 6).Draw(t, "events") {
		k := api.Key{Name: fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "object"))}
		_, had := has.objects[k]
		e := source.Event{Key: k, Added: !had}
		if !had || rapid.Bool().Draw(t, "change") {
			e.Object = &api.Object{Key: k, Hash: omap.Hash{version}}
		}
		if !slices.ContainsFunc(b.Events, func(o source.Event) bool { return o.Key == k }) {
			b.Events = append(b.Events, e)
		}
	}
	for _, name := range []string{"p", "q"} {
		if p := (api.Problem{Reason: name}); rapid.Bool().Draw(t, "problem") {
			b.Problems = append(b.Problems, source.ProblemEvent{Problem: p, Gone: has.problems[p]})
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "mesh") == 0 {
		b.Mesh = &meshconfig.MeshConfig{TrustDomain: fmt.Sprint(version)}
	}
	if rapid.IntRange(0, 3).Draw(t, "networks") == 0 {
		b.Networks = &meshconfig.MeshNetworks{Networks: map[string]*meshconfig.Network{fmt.Sprint(version): nil}}
	}
	return b
}

// TestQueueIsAPrefix takes jobs at random times while random batches arrive. The taken events must at each time equal a prefix of
// the source's history, and in the end all of it. The number of waiting events must be bounded by the number of objects.
func TestQueueIsAPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue()
		q.maxRows = rapid.IntRange(1, 12).Draw(t, "most")
		moments := []sourceContent{newSourceContent()} // of the source, after each batch
		sink, at := newSourceContent(), 0
		take := func() {
			for _, j := range q.take() {
				sink.take(j.changes.batch())
			}
			for at < len(moments) && !moments[at].equal(sink) {
				at++
			}
			if at == len(moments) {
				t.Fatalf("what was taken is not a prefix of the history of the source: %v", sink)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "take") == 0 {
				take()
				continue
			}
			now := moments[len(moments)-1].clone()
			b := drawBatch(t, now, byte(len(moments)))
			now.take(b)
			moments = append(moments, now)
			q.apply(b)
			seen, waiting := map[api.Key]bool{}, 0
			for e := q.jobs.Front(); e != nil; e = e.Next() {
				for _, e := range e.Value.(*job).changes.events {
					seen[e.Key] = true
					waiting++
				}
			}
			if waiting != len(seen) {
				t.Fatalf("%d events of %d objects wait", waiting, len(seen))
			}
		}
		for !q.empty() {
			take()
		}
		if !sink.equal(moments[len(moments)-1]) {
			t.Fatal("something is lost")
		}
	})
}

// TestQueueIsBounded checks that the queue stays small while the loop is busy and a source writes the same objects many times,
// or objects and proxies come and go.
func TestQueueIsBounded(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	<-f.Synced()
	busy, release := make(chan struct{}), make(chan struct{})
	f.queue.add(&job{after: func() { close(busy); <-release }})
	<-busy
	same := meshtest.Parse(t, reviews)[0]
	for i := range 3 * commitRows {
		b := source.Batch{Source: "test", Events: []source.Event{{Key: same.Key, Object: same}}}
		passing := api.Key{Kind: "ServiceEntry", Namespace: "shop", Name: fmt.Sprint("passing", i)}
		problem := api.Problem{Object: passing, Reason: "passing"}
		b.Events = append(b.Events, source.Event{Key: passing, Object: same, Added: true})
		b.Problems = []source.ProblemEvent{{Problem: problem}}
		f.Apply(b)
		f.Apply(source.Batch{Source: "test", Events: []source.Event{{Key: passing}}, Problems: []source.ProblemEvent{{Problem: problem, Gone: true}}})
	}
	for i := range 100 {
		c, err := f.Attach(meshtest.Node(t, node(i), ""), newStream())
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			c.Pin([]reject.Pin{{Name: "c"}}, "no")
			c.NoteUnacknowledged([]protocol.Unacknowledged{{Names: []string{"c"}}})
		}
		if n := f.queue.jobs.Len() + f.queue.reports.Len(); n > 4 {
			t.Fatalf("%d jobs wait", n)
		}
		c.Close()
	}
	f.queue.mu.Lock()
	jobs, events, problems := f.queue.jobs.Len()+f.queue.reports.Len(), 0, 0
	for _, j := range f.queue.open["test"] {
		events, problems = events+len(j.changes.events), problems+len(j.changes.problems)
	}
	f.queue.mu.Unlock()
	if jobs != 1 || events != 1 || problems != 0 {
		t.Errorf("%d jobs, %d events and %d problems wait, want one job with one event", jobs, events, problems)
	}
	close(release)
	f.settled(func(v *View) {
		if v.Tables.Services.Len() != 1 || v.Tables.Proxies.Len() != 0 || v.Problems.Len() != 0 {
			t.Errorf("%d services, %d proxies, %d problems", v.Tables.Services.Len(), v.Tables.Proxies.Len(), v.Problems.Len())
		}
	})
}

// TestReportsFillCommits checks that other jobs do not wait behind reports, however many, and that some report goes with every
// commit.
func TestReportsFillCommits(t *testing.T) {
	q := newQueue()
	q.maxRows = 10
	for range 20 {
		q.add(&job{report: true, rows: 4})
	}
	taken := func() (events, reports int) {
		for _, j := range q.take() {
			if j.report {
				reports++
			} else {
				events++
			}
		}
		return events, reports
	}
	for _, c := range []struct{ arrive, events, reports int }{
		{0, 0, 3}, // until the commit is full
		{1, 1, 1}, // before the others
		{4, 2, 1}, // as much as a commit takes, and yet one report
		{0, 2, 1}, // the rest of them
		{0, 0, 3},
	} {
		for range c.arrive {
			q.add(&job{rows: 9})
		}
		if events, reports := taken(); events != c.events || reports != c.reports {
			t.Errorf("after %d events a commit takes %d, and %d reports; want %d and %d", c.arrive, events, reports, c.events, c.reports)
		}
	}
}

// TestBatchesPerCommitAreBounded checks that many batches are taken in several commits, each with whole batches.
func TestBatchesPerCommitAreBounded(t *testing.T) {
	q := newQueue()
	for i := range 10 {
		b := source.Batch{Source: "s"}
		for j := range commitRows / 4 {
			b.Events = append(b.Events, source.Event{Key: api.Key{Name: fmt.Sprint(i, "-", j)}})
		}
		q.apply(b)
	}
	for i := 0; !q.empty(); i++ {
		rows := 0
		for _, j := range q.take() {
			rows += j.rows
		}
		if rows > 2*commitRows { // the last job may be as large as a commit
			t.Errorf("commit %d takes %d rows, %d are about the limit", i, rows, commitRows)
		}
	}
}

// TestFirstBuildsProceedUnderLoad checks that a new class is built while commits follow one another without pause. Behind each
// commit about as many cells of the first build run as the commit ran.
func TestFirstBuildsProceedUnderLoad(t *testing.T) {
	f, l := large(t, 1000)
	<-f.Synced()
	f.quiet("what is wrong is known")
	var before int
	f.settled(func(v *View) { before = total(v.Graph.Cells()) })
	stop := make(chan struct{})
	n := 0
	f.queue.add(&job{after: func() {
		inner := f.settings.Observe
		f.settings.Observe = func(c Commit) {
			inner(c)
			select {
			case <-stop:
				return
			default:
			}
			n++
			b := source.Batch{Source: "test", Synced: true} // the queue is never empty
			for i := range 60 {
				o := l.ServiceEntry(i*10, n%200+1)
				b.Events = append(b.Events, source.Event{Key: o.Key, Object: o})
			}
			f.Apply(b)
		}
		f.settings.Observe(Commit{})
	}})
	_, s := f.attach(node(0), "")
	s.wait(t, "its clusters", has(resource.Cluster, "outbound|80||"+l.Host(1)))
	var after, commits int
	f.settled(func(v *View) { close(stop); after, commits = total(v.Graph.Cells()), n })
	cells := after - before
	if most := cells/50 + 20; commits > most {
		t.Errorf("%d cells took %d commits, want %d at most", cells, commits, most)
	}
	t.Logf("%d cells were built behind %d commits", cells, commits)
}

func total(cells map[string]int) (n int) {
	for _, c := range cells {
		n += c
	}
	return n
}
