package memory_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func workload(t *testing.T, name, address string) *api.Object {
	t.Helper()
	o, err := api.Object{
		Key: api.Key{Name: name}, Spec: &networking.WorkloadEntry{Address: address},
	}.Seal()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// queue is an unbounded sink.
type queue struct {
	mu      sync.Mutex
	batches []source.Batch
	first   chan struct{}
	once    sync.Once
}

func (q *queue) Apply(b source.Batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.batches = append(q.batches, b)
	q.once.Do(func() { close(q.first) })
}

func (q *queue) take() []source.Batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.batches
	q.batches = nil
	return all
}

// run runs the source until the returned function is called.
func run(t *testing.T, s *memory.Source) (*queue, func()) {
	t.Helper()
	q := &queue{first: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx, q) }()
	<-q.first
	return q, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func keys(events []source.Event) []string {
	var out []string
	for _, e := range events {
		name := e.Key.Name
		if e.Object == nil {
			name = "-" + name
		}
		out = append(out, name)
	}
	return out
}

func TestSource(t *testing.T) {
	s := memory.New("test")
	s.Set(workload(t, "b", "192.0.2.1"), workload(t, "a", "192.0.2.1"))
	q, stop := run(t, s)
	check := func(want ...string) {
		t.Helper()
		batches := q.take()
		if len(want) == 0 {
			if len(batches) > 0 {
				t.Fatalf("got %v, want nothing", batches)
			}
			return
		}
		if len(batches) != 1 || !slices.Equal(keys(batches[0].Events), want) || !batches[0].Synced || batches[0].Source != "test" {
			t.Fatalf("got %+v, want one batch of %v", batches, want)
		}
	}
	check("a", "b")
	s.Set(workload(t, "a", "192.0.2.1"))
	check()
	s.Update(func(tx *memory.Tx) {
		tx.Set(workload(t, "c", "192.0.2.1"), workload(t, "a", "192.0.2.2"))
		tx.Delete(workload(t, "b", "x").Key, api.Key{Name: "nobody"})
		tx.Set(workload(t, "d", "192.0.2.1"))
		tx.Delete(workload(t, "d", "x").Key)
	})
	check("a", "-b", "c")
	m := api.DefaultMesh()
	s.Update(func(tx *memory.Tx) { tx.Mesh(m) })
	if b := q.take(); len(b) != 1 || b[0].Mesh != m {
		t.Fatalf("mesh: %v", b)
	}
	s.Update(func(tx *memory.Tx) { tx.Mesh(api.DefaultMesh()) })
	check()
	stop()
	s.Delete(workload(t, "a", "x").Key)
	check()
	q, stop = run(t, s)
	defer stop()
	if b := q.take(); len(b) != 1 || !slices.Equal(keys(b[0].Events), []string{"c"}) || b[0].Mesh == nil {
		t.Fatalf("a second run begins with %v", b)
	}
	if err := s.Run(t.Context(), q); err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("two runs at once: %v", err)
	}
}

// TestRefused: an object that validation refuses is not applied, and its last good version stays.
func TestRefused(t *testing.T) {
	s := memory.New("test")
	q, stop := run(t, s)
	defer stop()
	q.take()
	s.Set(workload(t, "a", "192.0.2.1"))
	q.take()
	problems := s.Set(workload(t, "a", "not an address"), workload(t, "b", "192.0.2.1"))
	if !api.Failed(problems) || len(problems) != 1 || problems[0].Field != "spec.address" {
		t.Errorf("problems %v", problems)
	}
	b := q.take()
	if len(b) != 1 || !slices.Equal(keys(b[0].Events), []string{"b"}) || !slices.Equal(b[0].Problems, source.ProblemEvents(nil, problems)) {
		t.Errorf("batches %+v", b)
	}
	if again := s.Set(workload(t, "a", "not an address")); !slices.Equal(again, problems) || len(q.take()) != 0 {
		t.Error("the same mistake is news")
	}
	s.Set(workload(t, "a", "192.0.2.1"))
	if b := q.take(); len(b) != 1 || len(b[0].Events) != 0 || !slices.Equal(b[0].Problems, source.ProblemEvents(problems, nil)) {
		t.Errorf("healed: %+v", b)
	}
	if problems := s.Set(&api.Object{Key: api.Key{Kind: "WorkloadEntry", Namespace: "default", Name: "c"}}); !api.Failed(problems) {
		t.Error("an object that is not sealed was taken")
	}
}

// TestConcurrent updates from many goroutines while runs come and go.
func TestConcurrent(t *testing.T) {
	s := memory.New("test")
	a, b := workload(t, "a", "192.0.2.1"), workload(t, "a", "192.0.2.2")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				s.Set(a)
				s.Set(b)
				s.Delete(a.Key)
			}
		})
	}
	for range 10 {
		_, stop := run(t, s)
		stop()
	}
	wg.Wait()
}
