package run

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal collects what actors do, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) want(t *testing.T, lines ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.lines, lines) {
		t.Errorf("got %q, want %q", j.lines, lines)
	}
}

// obedient returns an actor that runs until its context ends, and then takes a while to return.
func (j *journal) obedient(name string, takes time.Duration) Actor {
	ready := make(chan struct{})
	return Actor{Name: name, Ready: ready, Run: func(ctx context.Context) error {
		j.add("+" + name)
		close(ready)
		<-ctx.Done()
		<-time.After(takes)
		j.add("-" + name)
		return nil
	}}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		g := New(quiet(), time.Minute)
		for _, name := range []string{"a", "b", "c"} {
			g.Add(j.obedient(name, time.Second))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Hour, cancel)
		begin := time.Now()
		if err := g.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		j.want(t, "+a", "+b", "+c", "-c", "-b", "-a")
		if took := time.Since(begin) - time.Hour; took != 3*time.Second {
			t.Errorf("stopping took %v, want one second each", took)
		}
	})
}

func TestFirstExitStopsAll(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"error": {boom, "b: boom"},
		"nil":   {nil, "b ended unexpectedly"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				g := New(quiet(), time.Minute)
				g.Add(j.obedient("a", 0))
				g.Add(Actor{Name: "b", Run: func(context.Context) error { <-time.After(time.Second); return c.err }})
				g.Add(j.obedient("c", 0))
				err := g.Run(t.Context())
				if err == nil || err.Error() != c.want {
					t.Errorf("Run: %v, want %q", err, c.want)
				}
				if c.err != nil && !errors.Is(err, c.err) {
					t.Errorf("%v does not wrap %v", err, c.err)
				}
				j.want(t, "+a", "+c", "-c", "-a")
			})
		})
	}
}

// TestNeverReady: actors after one that is not ready are never started, whichever actor ends.
func TestNeverReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, fails := range []bool{true, false} {
			var j journal
			g := New(quiet(), time.Minute)
			g.Add(j.obedient("a", 0))
			stuck := j.obedient("stuck", 0)
			stuck.Ready = make(chan struct{})
			g.Add(stuck)
			g.Add(j.obedient("never", 0))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if fails {
				g.actors[0].Run = func(context.Context) error { <-time.After(time.Second); return errors.New("gone") }
				g.actors[0].Ready = nil
			}
			err := g.Run(ctx)
			cancel()
			if fails != (err != nil) {
				t.Errorf("fails=%v: Run: %v", fails, err)
			}
			if slices.Contains(j.lines, "+never") {
				t.Errorf("an actor was started behind one that was not ready")
			}
		}
	})
}

// TestDeadlines: one that does not obey delays the others by its own time at most, all of them by the group's.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		g := New(quiet(), 10*time.Second)
		deaf := make(chan struct{})
		defer close(deaf)
		ignore := func(context.Context) error { <-deaf; return nil }
		g.Add(j.obedient("a", 0))
		g.Add(Actor{Name: "slow", Run: ignore})
		g.Add(Actor{Name: "bounded", Run: ignore, Stop: 2 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := time.Now().Add(time.Second)
		time.AfterFunc(time.Second, cancel)
		err := g.Run(ctx)
		if took := time.Since(cancelled); took != 10*time.Second {
			t.Errorf("stopping took %v, want 10s", took)
		}
		for _, want := range []string{"bounded did not stop within 2s", "slow did not stop within 8s"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Run: %v, want %q", err, want)
			}
		}
		synctest.Wait()
		j.want(t, "+a", "-a") // it is stopped all the same
	})
}

func TestErrorOnTheWayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(quiet(), time.Minute)
		g.Add(Actor{Name: "a", Run: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
		g.Add(Actor{Name: "b", Run: func(ctx context.Context) error { <-ctx.Done(); return errors.New("could not save") }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Run(ctx); err == nil || err.Error() != "b: could not save" {
			t.Errorf("Run: %v, want only what b said", err)
		}
	})
}

func TestCancelledBeforeStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var j journal
	g := New(quiet(), time.Minute)
	g.Add(j.obedient("a", 0))
	if err := g.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
	j.want(t)
}

// free is an address that is not in use at the moment.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestHTTP(t *testing.T) {
	addr := free(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "done")
	})
	a := ListenHTTP("pages", addr, h, time.Minute, quiet())
	ctx, cancel := context.WithCancel(t.Context())
	g := New(quiet(), time.Minute)
	g.Add(a)
	stopped := make(chan error)
	go func() { stopped <- g.Run(ctx) }()
	<-a.Ready
	body := make(chan string)
	go func() {
		resp, err := http.Get("http://" + addr)
		if err != nil {
			body <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		body <- string(b)
	}()
	<-asked
	cancel()
	close(answer)
	if got := <-body; got != "done" {
		t.Errorf("a request under way got %q", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Run: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestHTTPCutsOff: a request that never ends is cut off.
func TestHTTPCutsOff(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { close(asked); <-r.Context().Done() })
	a := HTTP("pages", l, h, 10*time.Millisecond, quiet())
	ctx, cancel := context.WithCancel(t.Context())
	g := New(quiet(), time.Minute)
	g.Add(a)
	stopped := make(chan error)
	go func() { stopped <- g.Run(ctx) }()
	failed := make(chan error)
	go func() {
		resp, err := http.Get("http://" + l.Addr().String())
		if err == nil {
			resp.Body.Close()
		}
		failed <- err
	}()
	<-asked
	cancel()
	if err := <-stopped; err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := <-failed; err == nil {
		t.Error("the request was answered")
	}
	http.DefaultClient.CloseIdleConnections()
}
