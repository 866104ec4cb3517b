package life

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is an Envoy in a bubble of time: it becomes ready a while after each start, and ends on Terminate or Kill.
type script struct {
	readyAfter  time.Duration
	crashes     []time.Duration // each process ends by itself after that long; those behind live
	connections []int           // answers to Connections, the last one for good
	stubborn    bool            // Terminate does nothing
	refuse      error           // of Start
	hot         bool            // the journal has processes and configurations, and a parent ends after a minute

	mu      sync.Mutex
	began   time.Time
	starts  int
	started time.Time
	process *scriptProcess
	journal []string
}

type scriptProcess struct {
	script *script
	once   sync.Once
	ended  chan struct{}
	err    error
}

func (s *script) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal = append(s.journal, time.Since(s.began).String()+" "+what)
}

func (s *script) Clean(process int) { s.noteHot(fmt.Sprintf("clean %d", process)) }

func (s *script) Serves(revision int) { s.noteHot(fmt.Sprintf("serves %d", revision)) }

// noteHot notes what only tests of hot restarts look at.
func (s *script) noteHot(what string) {
	if s.hot {
		s.note(what)
	}
}

func (s *script) Start(l Launch) (Process, bool, error) {
	s.note(choose(s.hot, fmt.Sprintf("start %d of %d with %d", l.Process, l.Parent, l.Revision), "start"))
	if s.refuse != nil {
		return nil, true, s.refuse
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &scriptProcess{script: s, ended: make(chan struct{})}
	if old := s.process; l.Parent != 0 {
		time.AfterFunc(time.Minute, func() { old.end(nil) })
	}
	s.process, s.started = p, time.Now()
	if s.starts++; s.starts <= len(s.crashes) {
		time.AfterFunc(s.crashes[s.starts-1], func() { p.end(errors.New("exit status 139")) })
	}
	return p, false, nil
}

func (p *scriptProcess) end(err error) {
	p.once.Do(func() { p.err = err; close(p.ended) })
}

func (p *scriptProcess) Terminate() error {
	p.script.note("terminate")
	if !p.script.stubborn {
		p.end(nil)
	}
	return nil
}

func (p *scriptProcess) Kill() error {
	p.script.note("kill")
	p.end(errors.New("signal: killed"))
	return nil
}

func (p *scriptProcess) Wait() error {
	<-p.ended
	return p.err
}

func (s *script) Ready(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.started) < s.readyAfter {
		return errors.New("not yet")
	}
	return nil
}

func (s *script) Drain(_ context.Context, goOn bool) error {
	s.note(choose(goOn, "warn", "drain"))
	return errors.New("this one cannot")
}

func (s *script) Connections(context.Context) (int, error) {
	s.note("count")
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.connections[0]
	if len(s.connections) > 1 {
		s.connections = s.connections[1:]
	}
	return n, nil
}

// run runs a supervisor of the script while act acts on it, and returns the result of Run.
func (s *script) run(t *testing.T, p Policy, act func(*Supervisor, context.CancelFunc)) error {
	t.Helper()
	s.began = time.Now()
	sup := New(s, p, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error)
	go func() { result <- sup.Run(ctx) }()
	act(sup, cancel)
	err := <-result
	if sup.State() != Stopped {
		t.Errorf("the state is %v after the end", sup.State())
	}
	sup.End() // requests after the end do not block
	sup.Leave()
	return err
}

func (s *script) want(t *testing.T, lines ...string) {
	t.Helper()
	if !slices.Equal(s.journal, lines) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(s.journal, "\n"), strings.Join(lines, "\n"))
	}
}

func TestLifeAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{readyAfter: 120 * time.Millisecond}
		err := s.run(t, Default(), func(sup *Supervisor, _ context.CancelFunc) {
			<-sup.Ready()
			if sup.State() != Ready || time.Since(s.began) != 150*time.Millisecond {
				t.Errorf("%v after %v", sup.State(), time.Since(s.began))
			}
			sup.End()
			synctest.Wait()
			if sup.State() != Draining {
				t.Errorf("%v after the order to end", sup.State())
			}
		})
		if err != nil {
			t.Error(err)
		}
		s.want(t, "0s start", "150ms drain", "5.15s terminate")
	})
}

// TestLongStart: the log reports what Envoy waits for, at growing intervals.
func TestLongStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := &script{readyAfter: time.Minute}
		sup := New(s, Default(), slog.New(slog.NewTextHandler(&log, nil)))
		done := make(chan error)
		go func() { done <- sup.Run(t.Context()) }()
		<-sup.Ready()
		sup.End()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, after := range []string{"5s", "10s", "20s", "40s"} {
			if line := `msg="Envoy is still not ready" after=` + after + ` because="not yet"`; strings.Count(log.String(), line) != 1 {
				t.Errorf("%s is not there once:\n%s", line, log.String())
			}
		}
		if n := strings.Count(log.String(), "still not ready"); n != 4 {
			t.Errorf("it was told %d times", n)
		}
	})
}

func TestCancelledContextIsAnOrderToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		if err := s.run(t, Default(), func(sup *Supervisor, cancel context.CancelFunc) { <-sup.Ready(); cancel() }); err != nil {
			t.Error(err)
		}
		s.want(t, "0s start", "50ms drain", "5.05s terminate")
	})
}

func TestUntilIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{connections: []int{2, 1, 0}}
		p := Default()
		p.UntilIdle = true
		if err := s.run(t, p, func(sup *Supervisor, _ context.CancelFunc) { <-sup.Ready(); sup.End() }); err != nil {
			t.Error(err)
		}
		s.want(t, "0s start", "50ms drain", "5.05s count", "6.05s count", "7.05s count", "7.05s terminate")
	})
}

func TestSecondOrderEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		err := s.run(t, Default(), func(sup *Supervisor, _ context.CancelFunc) {
			<-sup.Ready()
			sup.Leave()
			<-time.After(time.Second)
			sup.End()
			<-time.After(time.Second)
			sup.End()
		})
		if !errors.Is(err, ErrAborted) {
			t.Error(err)
		}
		s.want(t, "0s start", "50ms warn", "2.05s kill")
	})
}

func TestStubbornIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{stubborn: true}
		if err := s.run(t, Default(), func(sup *Supervisor, _ context.CancelFunc) { <-sup.Ready(); sup.End() }); err != nil {
			t.Error(err)
		}
		s.want(t, "0s start", "50ms drain", "5.05s terminate", "10.05s kill")
	})
}

func TestCrashesAreMadeGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{crashes: []time.Duration{0, time.Second}}
		err := s.run(t, Default(), func(sup *Supervisor, _ context.CancelFunc) {
			<-sup.Ready()
			<-time.After(10 * time.Second)
			sup.Leave() // a wish in time keeps no timer from going off
			sup.End()
		})
		if err != nil {
			t.Error(err)
		}
		s.want(t, "0s start", "200ms start", "1.6s start", "10.25s warn", "15.25s terminate")
	})
}

// TestWishesDoNotStopTimers: a request that changes nothing must not change the timer.
func TestWishesDoNotStopTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{crashes: []time.Duration{0}}
		err := s.run(t, Default(), func(sup *Supervisor, _ context.CancelFunc) {
			<-time.After(100 * time.Millisecond)
			sup.Leave()
			<-sup.Ready()
			sup.End()
		})
		if err != nil {
			t.Error(err)
		}
		s.want(t, "0s start", "200ms start", "250ms drain", "5.25s terminate")
	})
}

func TestTooManyCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{crashes: []time.Duration{0, 0, 0}}
		p := Default()
		p.Restarts = 2
		err := s.run(t, p, func(*Supervisor, context.CancelFunc) {})
		if !errors.Is(err, ErrCrashed) || !strings.Contains(err.Error(), "3 times in a row, the last time: exit status 139") {
			t.Error(err)
		}
		s.want(t, "0s start", "200ms start", "600ms start")
	})
}

func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{refuse: errors.New("permission denied")}
		if err := s.run(t, Default(), func(*Supervisor, context.CancelFunc) {}); !errors.Is(err, s.refuse) {
			t.Error(err)
		}
		s.want(t, "0s start")
	})
}

func TestHotRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{hot: true, readyAfter: 10 * time.Millisecond}
		err := s.run(t, Default(), func(sup *Supervisor, _ context.CancelFunc) {
			<-sup.Ready()
			sup.Change(2)
			<-time.After(time.Second)
			if sup.State() != Retiring {
				t.Errorf("%v after a change", sup.State())
			}
			sup.Change(3)
			<-time.After(2 * time.Minute)
			if _, refused := sup.Refused(); refused || sup.State() != Ready {
				t.Errorf("%v, refused %v", sup.State(), refused)
			}
			sup.End()
		})
		if err != nil {
			t.Error(err)
		}
		s.want(t, "0s start 1 of 0 with 1", "50ms serves 1",
			"50ms start 2 of 1 with 2", "100ms serves 2", "1m0.05s clean 1",
			"1m0.05s start 3 of 2 with 3", "1m0.1s serves 3", "2m0.05s clean 2",
			"2m1.05s drain", "2m6.05s terminate", "2m6.05s clean 3")
	})
}

// TestFailedHotRestart: the process that serves stays, and the configuration is refused after three failures.
func TestFailedHotRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{hot: true, readyAfter: 10 * time.Millisecond, crashes: []time.Duration{time.Hour, 0, 0, 0}}
		err := s.run(t, Default(), func(sup *Supervisor, _ context.CancelFunc) {
			<-sup.Ready()
			sup.Change(2)
			<-time.After(10 * time.Second)
			if why, refused := sup.Refused(); !refused || why != "exit status 139" || sup.State() != Retiring {
				t.Errorf("%v: %v %s", sup.State(), refused, why)
			}
			sup.End()
		})
		if err != nil {
			t.Error(err)
		}
		ends := s.journal[len(s.journal)-2:]
		slices.Sort(ends) // of two processes at once
		s.want(t, "0s start 1 of 0 with 1", "50ms serves 1",
			"50ms start 2 of 1 with 2", "50ms clean 2", "250ms start 3 of 1 with 2", "250ms clean 3", "650ms start 4 of 1 with 2", "650ms clean 4",
			"850ms start 5 of 1 with 1", "900ms serves 1", "10.05s drain", "15.05s terminate", "15.05s terminate", "15.05s clean 1", "15.05s clean 5")
	})
}
