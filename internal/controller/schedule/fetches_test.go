package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pilotmesh/pilot/internal/controller/fair"
)

// servers answer fetches. A key that begins with "slow" has no answer until the fetch ends, and one that begins with "bad" fails at once.
type servers struct {
	mu      sync.Mutex
	asked   map[string]int
	wanted  []fair.Want[string]
	results []string
	gone    []string
}

func (s *servers) fetch(ctx context.Context, k string) (string, error) {
	s.mu.Lock()
	s.asked[k]++
	s.mu.Unlock()
	switch {
	case strings.HasPrefix(k, "slow"):
		<-ctx.Done()
		return "", ctx.Err()
	case strings.HasPrefix(k, "bad"):
		return "", errors.New("away")
	}
	return "answer", nil
}

// fetched returns how often the keys with a prefix were asked for.
func (s *servers) fetched(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, times := range s.asked {
		if strings.HasPrefix(k, prefix) {
			n += times
		}
	}
	return n
}

// run runs fetches in a bubble until the end of the test. The returned function changes the wanted keys, as NAMESPACE/KEY, and lets a time pass.
func (s *servers) run(t *testing.T, f *Fetches[string, int, string]) (after func(d time.Duration, wants ...string)) {
	s.asked = map[string]int{}
	f.Compare, f.Pauses, f.Fetch = cmp.Compare[string], Pauses{time.Second, time.Minute}, s.fetch
	f.Done = func(k string, e *Entry[int], a string, err error) time.Duration {
		e.State++
		s.results = append(s.results, fmt.Sprintf("%s %d %s%v", k, e.State, a, err))
		return 10 * time.Minute
	}
	changed, ended := make(chan struct{}, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		f.Run(ctx, changed, func(context.Context) { s.gone = append(s.gone, f.Follow(s.wanted)...) }, nil)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return func(d time.Duration, wants ...string) {
		synctest.Wait()
		if wants != nil {
			s.wanted = nil
			for _, w := range wants {
				namespace, k, _ := strings.Cut(w, "/")
				s.wanted = append(s.wanted, fair.Want[string]{Namespace: namespace, Thing: k})
			}
			changed <- struct{}{}
		}
		<-time.After(d)
		synctest.Wait()
	}
}

func many(namespace, name string, count int) (wants []string) {
	for i := range count {
		wants = append(wants, fmt.Sprintf("%s/%s-%s-%02d", namespace, name, namespace, i))
	}
	return wants
}

// TestFetches: a wanted key is fetched at once, and again after the time that its controller says; after failures with growing pauses. A key that is not
// wanted any more is not fetched, its late answer is dropped, and it begins from nothing when it is wanted again.
func TestFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{}
		after := s.run(t, &Fetches[string, int, string]{Places: 4})
		after(time.Minute, "/a", "/bad", "one/slow", "two/slow")
		if s.fetched("a") != 1 || s.fetched("slow") != 1 || s.fetched("bad") < 4 || s.fetched("bad") > 9 {
			t.Errorf("after a minute: %v", s.asked)
		}
		after(10 * time.Minute)
		if s.fetched("a") != 2 || !slices.Contains(s.results, "a 2 answer<nil>") || !slices.Contains(s.results, "bad 1 away") {
			t.Errorf("later: %v, %q", s.asked, s.results)
		}
		after(time.Hour, "/b")
		slices.Sort(s.gone)
		if !slices.Equal(s.gone, []string{"a", "bad", "slow"}) || s.fetched("a") != 2 || s.fetched("b") < 6 {
			t.Errorf("other keys: gone %q, %v", s.gone, s.asked)
		}
		s.results = nil
		after(time.Second, "/a")
		if !slices.Equal(s.results, []string{"a 1 answer<nil>"}) {
			t.Errorf("wanted again: %q", s.results)
		}
	})
}

// TestPlaces: servers that do not answer leave places for the keys of other namespaces, also if these are wanted later. Keys of no namespace may use all
// places.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{}
		f := &Fetches[string, int, string]{Places: 16}
		after := s.run(t, f)
		slow := slices.Concat(many("aaa", "slow", 64), many("bbb", "slow", 64))
		after(time.Minute, slow...)
		if n := s.fetched("slow"); n >= 16 || n < 8 {
			t.Fatalf("two namespaces have %d of 16 places", n)
		}
		after(time.Second, append(slow, "zoo/good", "aaa/good")...)
		if s.fetched("good") != 1 {
			t.Error("the key of another namespace waits")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &servers{}
		after := s.run(t, &Fetches[string, int, string]{Places: 16})
		after(time.Minute, many("", "slow", 64)...)
		if n := s.fetched("slow"); n != 16 {
			t.Errorf("keys of no namespace have %d of 16 places", n)
		}
	})
}

// TestStarts: a namespace whose fetches fail at once starts a bounded number of them per second, another namespace still starts its own, a new key goes
// first, and the rest follows.
func TestStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{}
		after := s.run(t, &Fetches[string, int, string]{Places: 16, Starts: 10})
		list := many("aaa", "bad", 25)
		after(time.Second/2, list...)
		if n := s.fetched("bad"); n != 10 {
			t.Errorf("%d fetches in the first second, want 10", n)
		}
		after(time.Second/4, append(list, "zoo/good", "aaa/new")...)
		if n := s.fetched("bad"); n != 10 || s.fetched("good") != 1 || s.fetched("new") != 0 {
			t.Errorf("of another namespace: %v", s.asked)
		}
		after(time.Second / 2)
		if n := s.fetched("bad"); n != 19 || s.fetched("new") != 1 {
			t.Errorf("in the next second: %d, and %d of the new key", n, s.fetched("new"))
		}
		after(2 * time.Minute)
		for _, k := range list {
			if s.fetched(strings.TrimPrefix(k, "aaa/")) == 0 {
				t.Errorf("%s is not fetched", k)
			}
		}
	})
}

// TestBounds: keys beyond the bounds are held, the ones that are fetched stay, and a held one is fetched when there is room.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{}
		f := &Fetches[string, int, string]{Places: 4, Bounds: fair.Bounds{Total: 3, Share: 1}}
		after := s.run(t, f)
		after(time.Second, "/c", "/d", "/e")
		after(time.Second, "/a", "/c", "/d", "/e", "other/f")
		if s.fetched("a") != 0 || s.fetched("f") != 1 || !f.Wanted["a"].Held || f.Wanted["f"].Held || !f.Wanted["e"].Held {
			t.Errorf("%v", s.asked)
		}
		after(time.Second, "/a", "/c", "other/f")
		if s.fetched("a") != 1 || s.fetched("c") != 1 || f.Wanted["a"].Held {
			t.Errorf("when there is room: %v", s.asked)
		}
	})
}
