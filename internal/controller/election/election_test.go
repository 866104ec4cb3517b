package election

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// server has one Lease, as an API server has it.
type server struct {
	mu      sync.Mutex
	lease   *coordination.Lease
	version int
	writes  int
	leading int  // how many candidates lead at present
	twice   bool // two did at a time
}

// client is the way of one candidate to the server.
type client struct {
	*server

	// skew is how far the clock of the candidate is ahead.
	skew atomic.Int64
	down atomic.Bool
	// hangs makes requests last until their context ends. A write is done nevertheless.
	hangs atomic.Bool
	// before is called once, before the next write.
	before atomic.Pointer[func()]
}

var (
	errDown = errors.New("connection refused")
	leases  = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
)

// begin returns the error of a request that does not reach the server.
func (c *client) begin(ctx context.Context) error {
	if c.down.Load() {
		return errDown
	}
	return ctx.Err()
}

// end is the end of a request.
func (c *client) end(ctx context.Context) error {
	if c.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (c *client) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordination.Lease, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	is := c.lease.DeepCopy()
	c.mu.Unlock()
	if is == nil {
		return nil, apierrors.NewNotFound(leases, name)
	}
	return is, c.end(ctx)
}

func (c *client) Create(ctx context.Context, l *coordination.Lease, _ metav1.CreateOptions) (*coordination.Lease, error) {
	return c.write(ctx, l, true)
}

func (c *client) Update(ctx context.Context, l *coordination.Lease, _ metav1.UpdateOptions, _ ...string) (*coordination.Lease, error) {
	return c.write(ctx, l, false)
}

func (c *client) write(ctx context.Context, l *coordination.Lease, create bool) (*coordination.Lease, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	if f := c.before.Swap(nil); f != nil {
		(*f)()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case create && c.lease != nil:
		return nil, apierrors.NewAlreadyExists(leases, l.Name)
	case !create && c.lease == nil:
		return nil, apierrors.NewNotFound(leases, l.Name)
	case !create && l.ResourceVersion != c.lease.ResourceVersion:
		return nil, apierrors.NewConflict(leases, l.Name, errors.New("it has changed"))
	}
	c.version++
	c.writes++
	c.lease = l.DeepCopy()
	c.lease.ResourceVersion = strconv.Itoa(c.version)
	renewed := metav1.NewMicroTime(l.Spec.RenewTime.Add(time.Duration(c.skew.Load())))
	c.lease.Spec.RenewTime = &renewed
	is := c.lease.DeepCopy()
	c.mu.Unlock()
	err := c.end(ctx)
	c.mu.Lock()
	return is, err
}

// delete deletes the Lease.
func (s *server) delete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = nil
}

// spec returns the present Lease.
func (s *server) spec() coordination.LeaseSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return coordination.LeaseSpec{}
	}
	return s.lease.DeepCopy().Spec
}

// replica is a candidate that runs.
type replica struct {
	*client

	leads atomic.Bool
	// terms are the reasons of the ends of its terms.
	terms []error
	kill  func() // ends it, and waits
}

// times are the times of the control plane.
func times() Times {
	return Times{Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
}

// run starts a candidate. Its work takes lasting to end.
func (s *server) run(t *testing.T, identity string, lasting time.Duration) *replica {
	t.Helper()
	r := &replica{client: &client{server: s}}
	c := &Candidate{
		Leases: r.client, Name: "leader", Identity: identity, Times: times(), Started: func() {},
		Stopped: func(err error) { r.terms = append(r.terms, err) },
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx, func(ctx context.Context) {
			s.mu.Lock()
			s.leading++
			s.twice = s.twice || s.leading > 1
			s.mu.Unlock()
			r.leads.Store(true)
			<-ctx.Done()
			wait(lasting)
			r.leads.Store(false)
			s.mu.Lock()
			s.leading--
			s.mu.Unlock()
		})
	}()
	r.kill = func() { cancel(); <-done }
	t.Cleanup(r.kill)
	synctest.Wait()
	return r
}

// wait lets time pass. Time in the bubble of a test passes when all goroutines wait.
func wait(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// pass lets time pass, and the candidates act.
func pass(d time.Duration) {
	wait(d)
	synctest.Wait()
}

// inBubble runs a test with a clock of its own, and demands that never two candidates led.
func inBubble(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		t.Cleanup(func() {
			if s.twice {
				t.Error("two candidates led at the same time")
			}
		})
		test(t, s)
	})
}

// wants checks who leads.
func wants(t *testing.T, of *replica, leads bool, when string) {
	t.Helper()
	if got := of.leads.Load(); got != leads {
		t.Fatalf("%s: leads %v, want %v", when, got, leads)
	}
}

// TestAcquire: the first candidate makes the Lease, in a form that other tools read, and renews it every period.
func TestAcquire(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		began := time.Now()
		a := s.run(t, "a", 0)
		wants(t, a, true, "at once")
		pass(time.Minute)
		is := s.spec()
		if *is.HolderIdentity != "a" || *is.LeaseDurationSeconds != 15 || *is.LeaseTransitions != 0 ||
			!is.AcquireTime.Equal(&metav1.MicroTime{Time: began}) || !is.RenewTime.Equal(&metav1.MicroTime{Time: began.Add(time.Minute)}) {
			t.Errorf("the lease is %v", is)
		}
		if s.writes != 31 || len(a.terms) != 0 {
			t.Errorf("%d writes, terms %v", s.writes, a.terms)
		}
	})
}

// TestTakeover: a Lease whose holder is gone is taken over when it has stayed the same for its duration by the clock of the candidate, and not by
// comparison of clocks: the holder's may be hours off.
func TestTakeover(t *testing.T) {
	for _, skew := range []time.Duration{0, -5 * time.Hour, 5 * time.Hour} {
		inBubble(t, func(t *testing.T, s *server) {
			a := s.run(t, "a", 0)
			a.skew.Store(int64(skew))
			pass(4 * time.Second)
			a.down.Store(true) // it writes no more, and stops ten seconds after its last write
			b := s.run(t, "b", 0)
			pass(14 * time.Second)
			wants(t, a, false, "after its deadline")
			wants(t, b, false, "before the lease has expired")
			pass(6 * time.Second)
			wants(t, b, true, "when the lease has expired")
			if is := s.spec(); *is.HolderIdentity != "b" || *is.LeaseTransitions != 1 || time.Since(is.AcquireTime.Time) > 6*time.Second {
				t.Errorf("the lease is %v", is)
			}
		})
	}
}

// TestRenewed: a candidate waits as long as the Lease changes.
func TestRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		a, b := s.run(t, "a", 0), s.run(t, "b", 0)
		a.skew.Store(int64(-time.Hour))
		for range 100 {
			pass(time.Minute)
			wants(t, a, true, "renewed")
			wants(t, b, false, "the other")
		}
	})
}

// TestLost: a leader that cannot renew the Lease stops after the deadline, and not at the first error; work has ended before it competes again.
func TestLost(t *testing.T) {
	for name, fail := range map[string]func(*replica, bool){
		"refused": func(r *replica, on bool) { r.down.Store(on) }, "hangs": func(r *replica, on bool) { r.hangs.Store(on) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *server) {
				a := s.run(t, "a", time.Second)
				fail(a, true)
				pass(7 * time.Second)
				wants(t, a, true, "before the deadline")
				fail(a, false)
				if name == "hangs" {
					pass(3500 * time.Millisecond) // the request that hangs loses the term
					wants(t, a, true, "while its work ends")
					pass(10 * time.Second)
					wants(t, a, true, "the next term")
					return
				}
				pass(2 * time.Second)
				if len(a.terms) > 0 {
					t.Fatalf("a term ended with %v", a.terms)
				}
				fail(a, true)
				pass(11 * time.Second)
				wants(t, a, false, "after the deadline")
				if len(a.terms) != 1 || !errors.Is(a.terms[0], errDown) || !errors.Is(a.terms[0], errLate) {
					t.Errorf("the terms ended with %v", a.terms)
				}
			})
		})
	}
}

// TestConflict: a Lease that another client has annotated is read and renewed again; one that another candidate has taken ends the term at once.
func TestConflict(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		a := s.run(t, "a", 0)
		change := func(f func(*coordination.Lease)) {
			before := func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.version++
				s.lease.ResourceVersion = strconv.Itoa(s.version)
				f(s.lease)
			}
			a.before.Store(&before)
		}
		change(func(l *coordination.Lease) { l.Annotations = map[string]string{"by": "another"} })
		pass(3 * time.Second)
		wants(t, a, true, "after an annotation")
		if s.lease.Annotations["by"] != "another" || s.writes != 2 {
			t.Errorf("the lease is %v after %d writes", s.lease, s.writes)
		}
		change(func(l *coordination.Lease) { b := "b"; l.Spec.HolderIdentity = &b })
		pass(2 * time.Second)
		wants(t, a, false, "another holds it")
		if len(a.terms) != 1 || !errors.Is(a.terms[0], errOther) {
			t.Errorf("the terms ended with %v", a.terms)
		}
		pass(20 * time.Second)
		wants(t, a, true, "when that has expired")
		if got := *s.spec().LeaseTransitions; got != 1 {
			t.Errorf("%d transitions", got)
		}
	})
}

// TestRelease: a leader that ends gives the Lease back after its work has ended, and renews it until then; another one leads soon.
func TestRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		a := s.run(t, "a", 20*time.Second) // longer than the lease
		b := s.run(t, "b", 0)
		pass(time.Second)
		ended := make(chan struct{})
		go func() { defer close(ended); a.kill() }()
		pass(19 * time.Second)
		wants(t, b, false, "while the work ends")
		<-ended
		if is := s.spec(); *is.HolderIdentity != "" || *is.LeaseDurationSeconds != 1 || *is.LeaseTransitions != 0 {
			t.Errorf("the lease is %v", is)
		}
		pass(4500 * time.Millisecond)
		wants(t, b, true, "after the release")
		if is := s.spec(); *is.HolderIdentity != "b" || *is.LeaseTransitions != 1 {
			t.Errorf("the lease is %v", is)
		}
		if len(a.terms) != 1 || a.terms[0] != nil {
			t.Errorf("the terms ended with %v", a.terms)
		}
	})
}

// TestRestart: a candidate that finds its own name in the Lease leads at once, and the term counts as the same.
func TestRestart(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		a := s.run(t, "a", 0)
		began := s.spec().AcquireTime
		pass(5 * time.Second)
		a.down.Store(true)
		a.kill()
		again := s.run(t, "a", 0)
		wants(t, again, true, "at once")
		if is := s.spec(); !is.AcquireTime.Equal(began) || *is.LeaseTransitions != 0 {
			t.Errorf("the lease is %v", is)
		}
	})
}

// TestDeleted: a leader makes a deleted Lease again. Another candidate does not do so before the Lease that it knew has expired.
func TestDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		a, b := s.run(t, "a", 0), s.run(t, "b", 0)
		for range 10 {
			pass(time.Second)
			s.delete()
			pass(19 * time.Second)
			wants(t, a, true, "after the deletion")
			wants(t, b, false, "the other")
		}
		a.down.Store(true)
		s.delete()
		pass(10 * time.Second)
		wants(t, b, false, "before the expiry")
		pass(10 * time.Second)
		wants(t, b, true, "after the expiry")
	})
}

// TestNeverTwo: replicas whose ways to the API server fail at times, and that end and begin, never lead at the same time; and there is a leader
// whenever the failures are over.
func TestNeverTwo(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		replicas := make([]*replica, 3)
		for n := range replicas {
			replicas[n] = s.run(t, strconv.Itoa(n), time.Second)
			replicas[n].skew.Store(int64(n-1) * int64(time.Hour))
		}
		// The periods are relatively prime, so that all combinations come up.
		for second := range 3000 {
			for n, r := range replicas {
				r.down.Store(second%(37+6*n) < 13+5*n)
				r.hangs.Store(second%(101+10*n) < 17)
				if second%(211+4*n) == 0 {
					go r.kill()
					replicas[n] = s.run(t, strconv.Itoa(n)+"-"+strconv.Itoa(second), time.Second)
					replicas[n].skew.Store(r.skew.Load())
				}
			}
			pass(time.Second)
		}
		for _, r := range replicas {
			r.down.Store(false)
			r.hangs.Store(false)
		}
		pass(time.Minute)
		if s.leading != 1 {
			t.Errorf("%d candidates lead", s.leading)
		}
	})
}
