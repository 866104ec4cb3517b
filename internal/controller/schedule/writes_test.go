package schedule

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// outside is a place where values are written. It records the writes in their order, and fails for some keys.
type outside struct {
	mu      sync.Mutex
	wanted  map[string]string
	fails   map[string]error
	unknown bool // it does not say that it has a value
	writes  []string
	logged  []string
}

// set changes the wanted values or the failures.
func (o *outside) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// run runs w in a bubble until the end of the test. The returned function changes the wanted values, lets a time pass, and returns the writes.
func (o *outside) run(t *testing.T, w Writes[string, string]) (after func(d time.Duration, change func()) string) {
	w.Compare, w.Pauses = cmp.Compare[string], Pauses{First: time.Second, Longest: time.Minute}
	w.Write = func(_ context.Context, k, v string) (bool, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.writes = append(o.writes, k+"="+v)
		return !o.unknown, o.fails[k]
	}
	w.Failed = func(k string, err error) { o.logged = append(o.logged, k+": "+err.Error()) }
	changed, ended := make(chan struct{}, 1), make(chan struct{})
	w.Changed, w.Look = changed, func(context.Context) (iter.Seq2[string, string], error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		return maps.All(maps.Clone(o.wanted)), nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { w.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	return func(d time.Duration, change func()) string {
		synctest.Wait()
		if change != nil {
			o.set(change)
			changed <- struct{}{}
		}
		<-time.After(d)
		synctest.Wait()
		o.mu.Lock()
		defer o.mu.Unlock()
		list := strings.Join(o.writes, " ")
		o.writes = nil
		return list
	}
}

// TestWrites: a value is written once, and again if it differs or was forgotten in between. One that fails is written again, with growing pauses, and its
// error is reported once; it keeps no other one from being written.
func TestWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outside{wanted: map[string]string{"a": "1", "b": "1"}, fails: map[string]error{}}
		after := o.run(t, Writes[string, string]{})
		for _, step := range []struct {
			name   string
			after  time.Duration
			change func()
			want   string
		}{
			{"at first", time.Minute, nil, "a=1 b=1"},
			{"nothing new", time.Hour, func() {}, ""},
			{"another value, and another key", time.Minute, func() { o.wanted["b"], o.wanted["c"] = "2", "1" }, "b=2 c=1"},
			{"gone", time.Minute, func() { delete(o.wanted, "c") }, ""},
			{"back", time.Minute, func() { o.wanted["c"] = "1" }, "c=1"},
			{"one fails", time.Millisecond, func() { o.fails["a"] = errors.New("away"); o.wanted["a"], o.wanted["b"] = "3", "3" }, "a=3 b=3"},
			{"tried again", 2 * time.Second, nil, "a=3"},
			{"it works again", 3 * time.Minute, func() { delete(o.fails, "a") }, "a=3"},
			{"and is known", time.Hour, nil, ""},
		} {
			if got := after(step.after, step.change); got != step.want {
				t.Errorf("%s: wrote %q, want %q", step.name, got, step.want)
			}
		}
		if want := []string{"a: away"}; !slices.Equal(o.logged, want) {
			t.Errorf("logged %q, want %q", o.logged, want)
		}
	})
}

// TestUnknownWrites: a value that the outside may not have is written again and again, about once a minute after a while.
func TestUnknownWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outside{wanted: map[string]string{"a": "1"}, unknown: true}
		after := o.run(t, Writes[string, string]{})
		after(time.Hour, nil)
		if n := strings.Count(after(time.Hour, nil), "a=1"); n < 40 || n > 120 {
			t.Errorf("%d writes in an hour", n)
		}
		if got := after(time.Minute/4, func() { o.wanted["a"] = "2" }); !strings.HasPrefix(got, "a=2 a=2") {
			t.Errorf("another value: %q; the pauses begin again", got)
		}
		if len(o.logged) > 0 {
			t.Errorf("logged %q", o.logged)
		}
	})
}

// TestWritesRepeat: with Repeat, known values are written again; with Period, a look needs no signal; and with AtOnce, each look writes a few.
func TestWritesRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outside{wanted: map[string]string{"a": "1", "b": "1", "c": "1"}}
		after := o.run(t, Writes[string, string]{Repeat: time.Minute, Period: time.Second, AtOnce: 2})
		if got := after(30*time.Second, nil); got != "a=1 b=1 c=1" {
			t.Errorf("at first: %q", got)
		}
		o.set(func() { o.wanted = map[string]string{"a": "2", "b": "1"} })
		if got := after(2*time.Second, nil); got != "a=2" {
			t.Errorf("without a signal: %q", got)
		}
		if got := after(time.Minute, nil); got != "b=1 a=2" {
			t.Errorf("a minute later: %q", got)
		}
	})
}
