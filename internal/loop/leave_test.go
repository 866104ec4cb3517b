package loop

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const reviewsCluster = "outbound|80||reviews.example.com"

// cells are the live cells when nothing is left to do.
func (f *fixture) cells() (cells map[string]int) {
	f.t.Helper()
	f.eventually("quiet", func(v *View) bool {
		cells = v.Graph.Cells()
		return !v.Graph.Pending()
	})
	return cells
}

// do queues a job.
func (f *fixture) do(j job) { f.queue.add(&j) }

// busy keeps the loop from taking anything until the returned function is called, so that the jobs queued until then are one commit.
func (f *fixture) busy() (release func()) {
	entered, done := make(chan struct{}), make(chan struct{})
	f.do(job{after: func() { close(entered); <-done }})
	<-entered
	return func() { close(done) }
}

// TestLeavingReleasesEverything checks that everything computed for one proxy alone is released when the proxy leaves.
func TestLeavingReleasesEverything(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	<-f.Synced()
	before := f.cells()
	var conns []*Connection
	for i := range 3 {
		c, s := f.attach(fmt.Sprintf("sidecar~10.1.0.%d~web-%d.shop~shop.svc.cluster.local", i, i), "")
		s.wait(t, "the cluster", has(resource.Cluster, reviewsCluster))
		conns = append(conns, c)
	}
	for left, leaves := range []int{0, 2, 1} {
		conns[leaves].Close()
		f.settled(func(v *View) {
			for _, n := range v.Classes {
				if len(v.Classes) != 1 || n != 2-left {
					t.Errorf("classes after %d of three proxies left: %v", left+1, v.Classes)
				}
			}
		})
	}
	f.settled(func(*View) { f.releaseClasses(time.Now().Add(2 * classGrace)) })
	if after := f.cells(); !maps.Equal(after, before) {
		t.Errorf("after all proxies left there are cells %v, before they came %v", after, before)
	}
}

// TestLeavingBeforeFirstCommit checks that a proxy that connects and leaves within one commit never becomes a row.
func TestLeavingBeforeFirstCommit(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	<-f.Synced()
	before := f.cells()
	release := f.busy()
	c, s := f.attach(web0, "")
	c.Close()
	release()
	if after := f.cells(); !maps.Equal(after, before) {
		t.Errorf("there are cells %v, before it came %v", after, before)
	}
	f.settled(func(v *View) {
		if len(v.Classes) != 0 || v.Tables.Proxies.Len() != 0 || len(f.conns) != 0 {
			t.Errorf("classes %v, %d proxies, %d connections", v.Classes, v.Tables.Proxies.Len(), len(f.conns))
		}
	})
	if s.count != 0 {
		t.Error("a stream that left before it became a row received a state")
	}
}

// TestMovingBetweenClasses checks that a proxy has one class at a time and receives only the states of that class.
func TestMovingBetweenClasses(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	_, web := f.attach(web0, `{"LABELS":{"app":"web"}}`)
	_, db := f.attach("sidecar~10.1.0.2~db-0.shop~shop.svc.cluster.local", `{"LABELS":{"app":"db"}}`)
	db.wait(t, "the cluster", has(resource.Cluster, reviewsCluster))
	web.wait(t, "the cluster", has(resource.Cluster, reviewsCluster))
	f.apply(sidecarForWeb)
	web.wait(t, "only what its Sidecar imports", lacks(resource.Cluster, reviewsCluster))
	f.settled(func(v *View) {
		of := 0
		for _, n := range v.Classes {
			of += n
		}
		if of != 2 {
			t.Errorf("two proxies are %d times in a class: %v", of, v.Classes)
		}
	})
	f.apply(strings.ReplaceAll(reviews, "reviews", "ratings"))
	db.wait(t, "another service", has(resource.Cluster, "outbound|80||ratings.example.com"))
	f.settled(func(*View) {})
	if !lacks(resource.Cluster, reviewsCluster)(web.state) {
		t.Error("a proxy received the state of a class that it has left")
	}

	before := web.count
	release := f.busy() // it returns to its class in the commit that changes the state of that
	f.apply("", api.Key{Kind: "Sidecar", Namespace: "shop", Name: "web"})
	f.apply(strings.ReplaceAll(reviews, "reviews", "details"))
	release()
	web.wait(t, "both services", func(st *resource.State) bool {
		return has(resource.Cluster, reviewsCluster)(st) && has(resource.Cluster, "outbound|80||details.example.com")(st)
	})
	f.settled(func(*View) {})
	if n := web.count - before; n != 1 {
		t.Errorf("it received the state of the class that it returned to %d times", n)
	}
}

// TestMissingStateIsNotPublished checks that the proxies of a class keep their state if its query never had a good value.
func TestMissingStateIsNotPublished(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	_, s := f.attach(web0, "")
	st := s.wait(t, "the cluster", has(resource.Cluster, reviewsCluster))
	before := s.count
	f.settled(func(*View) {
		for _, c := range f.classes {
			f.publish(c, nil)
		}
		f.deliver(nil)
	})
	if s.count != before || s.state != st {
		t.Error("the stream received another state")
	}
	f.settled(func(v *View) {
		for c := range v.Classes {
			if v.State(c) != st {
				t.Error("the class has another state")
			}
		}
	})
}

// TestCommitsAreBounded checks that many jobs that arrive at once are taken in several commits.
func TestCommitsAreBounded(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	<-f.Synced()
	f.settled(func(*View) {})
	before := len(f.done())
	release := f.busy()
	const many = commitRows/2 + 1
	for i := range 5 {
		key := api.Key{Namespace: "shop", Name: fmt.Sprint(i)}
		f.do(job{rows: many, write: func(tx *store.Txn) { f.tables.Positions.Set(tx, key, api.Position{Line: i + 1}) }})
	}
	release()
	f.eventually("all commits", func(*View) bool { return len(f.done()) == before+3 })
	for _, c := range f.done()[before:] {
		if c.Jobs > 2 {
			t.Errorf("a commit took %d jobs of %d rows", c.Jobs, many)
		}
	}
}

// done are the commits so far.
func (f *fixture) done() []Commit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Commit{}, f.commits...)
}

// TestProblemMovesBetweenSources checks that a problem remains if one source withdraws it while another raises it, in either
// order.
func TestProblemMovesBetweenSources(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	<-f.Synced()
	p := api.Problem{Object: api.Key{Kind: "ServiceEntry", Namespace: "shop", Name: "reviews"}, Severity: api.Warning, Field: "spec", Reason: "moves"}
	raised := map[string][]api.Problem{}
	raise := func(of string, list ...api.Problem) {
		f.Apply(source.Batch{Source: of, Synced: true, Problems: source.ProblemEvents(raised[of], list)})
		raised[of] = list
	}
	known := func(v *View) bool {
		for _, is := range v.Problems.All() {
			if is == p {
				return true
			}
		}
		return false
	}
	raise("a", p)
	f.eventually("the problem", known)
	for _, way := range [][2]string{{"a", "b"}, {"b", "a"}} {
		release := f.busy()
		raise(way[0])
		raise(way[1], p)
		release()
		f.cells()
		f.eventually("the problem of the other source", known)
	}
	raise("a")
	f.eventually("no problem", func(v *View) bool { return !known(v) })
}

// TestPanicAfterCommit checks that a panic in what a job does after its commit affects only that job.
func TestPanicAfterCommit(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	f.do(job{after: func() { panic("a bug") }})
	_, s := f.attach(web0, "")
	s.wait(t, "the cluster", has(resource.Cluster, reviewsCluster))
}

// TestManyProxiesReceiveTheState checks that proxies that connect together, and later ones, receive the state of their class
// exactly once.
func TestManyProxiesReceiveTheState(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	<-f.Synced()
	release := f.busy()
	var streams []*stream
	for i := range 3 {
		_, s := f.attach(fmt.Sprintf("sidecar~10.1.0.%d~web-%d.shop~shop.svc.cluster.local", i, i), "")
		streams = append(streams, s)
	}
	release()
	for _, s := range streams {
		s.wait(t, "the cluster", has(resource.Cluster, reviewsCluster))
	}
	_, late := f.attach("sidecar~10.1.0.9~web-9.shop~shop.svc.cluster.local", "")
	late.wait(t, "the cluster", has(resource.Cluster, reviewsCluster))
	f.settled(func(*View) {})
	for _, s := range append(streams, late) {
		if s.count != 1 {
			t.Errorf("a stream received one state %d times", s.count)
		}
	}
}
