package keys

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state/policies"
)

const keys = `{"keys":[{"kty":"RSA","e":"AQAB","n":"secretmodulus"}]}`

// serve starts a server whose paths behave badly in different ways.
func serve(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, keys) })
	mux.HandleFunc("/slow/", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/huge", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, keys, strings.Repeat(" ", 10<<20)) })
	mux.HandleFunc("/other", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"keys":"secretmodulus"}`) })
	mux.HandleFunc("/error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/keys", http.StatusFound) })
	mux.HandleFunc(discovery, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, `{"jwks_uri":"http://%s/keys"}`, r.Host) })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// TestFetch checks the keys that are fetched from well-behaved servers, and the errors for servers that misbehave.
func TestFetch(t *testing.T) {
	s := serve(t)
	for _, c := range []struct {
		name    string
		client  *Client
		from    policies.KeySource
		failure string
	}{
		{"keys", NewClient(Options{Local: true}), policies.KeySource{URL: s.URL + "/keys"}, ""},
		{"discovery", NewClient(Options{Local: true}), policies.KeySource{Issuer: s.URL + "/"}, ""},
		{"slow", NewClient(Options{Local: true}), policies.KeySource{URL: s.URL + "/slow", Timeout: 50 * time.Millisecond}, "in time"},
		{"huge", NewClient(Options{Local: true}), policies.KeySource{URL: s.URL + "/huge"}, "more than 1048576 bytes"},
		{"no keys", NewClient(Options{Local: true}), policies.KeySource{URL: s.URL + "/other"}, "not a set of JSON Web Keys"},
		{"error", NewClient(Options{Local: true}), policies.KeySource{URL: s.URL + "/error"}, "status 502"},
		{"redirect", NewClient(Options{Local: true}), policies.KeySource{URL: s.URL + "/redirect"}, "redirects"},
		{"loopback", NewClient(Options{}), policies.KeySource{URL: s.URL + "/keys"}, "loopback"},
		{"loopback by name", NewClient(Options{Local: true}), policies.KeySource{URL: strings.Replace(s.URL, "127.0.0.1", "localhost", 1) + "/keys"}, "loopback"},
		{"issuer that is no address", NewClient(Options{}), policies.KeySource{Issuer: "me@example.com"}, "set jwksUri"},
		{"file", NewClient(Options{}), policies.KeySource{URL: "file:///etc/passwd"}, "valid address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.client.Fetch(t.Context(), c.from)
			if c.failure == "" {
				if err != nil || got != keys {
					t.Fatalf("%q, %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.failure) {
				t.Fatalf("%v, want %q", err, c.failure)
			}
			if strings.Contains(err.Error(), "secretmodulus") || strings.Contains(err.Error(), s.URL) {
				t.Errorf("the error tells too much: %v", err)
			}
		})
	}
}

// events records batches.
type events []source.Event

func (e *events) Apply(b source.Batch) { *e = append(*e, b.Events...) }

// fetcher returns a fetcher that does not run.
func fetcher(sink source.Sink) *Fetcher {
	f := &Fetcher{Sink: sink, Client: NewClient(Options{}), Log: slog.New(slog.DiscardHandler)}
	f.prepare()
	return f
}

// want makes key sets wanted.
func (f *Fetcher) want(list ...policies.WantedKeySet) {
	var all wishes
	for _, k := range list {
		all = omap.With(all, omap.Put(k, omap.Unit{}))
	}
	f.follow(all)
}

// TestLastGoodKept checks that keys stay when they cannot be fetched any more, and that a key set that is no longer wanted is forgotten.
func TestLastGoodKept(t *testing.T) {
	var sent events
	k := policies.KeySource{URL: "https://a.example/keys"}
	f := fetcher(&sent)
	f.want(policies.WantedKeySet{KeySource: k})
	e := f.fetches.Wanted[k]
	if e.State != (policies.KeySet{Failure: waiting}) {
		t.Errorf("at first: %+v", e.State)
	}
	again := f.done(k, e, keys, nil)
	if e.State != (policies.KeySet{Keys: keys}) || again > defaultRefresh || again < defaultRefresh*9/10 {
		t.Fatalf("%+v, again after %v", e.State, again)
	}
	for range 2 {
		again = f.done(k, e, "", errors.New("gone"))
		if e.State != (policies.KeySet{Keys: keys, Failure: "gone"}) || again != longestPause {
			t.Fatalf("%+v, again after %v", e.State, again)
		}
	}
	if len(sent) != 3 {
		t.Errorf("%d events, want 3", len(sent))
	}
	f.want()
	if len(sent) != 4 || !sent[3].Removed() {
		t.Errorf("no longer wanted: %v", sent)
	}
}

// TestBounds checks that a thousand key sets is the limit.
func TestBounds(t *testing.T) {
	var sent events
	f := fetcher(&sent)
	f.want(sources("https://a.example", "", 10000)...)
	fetched := 0
	for _, e := range f.fetches.Wanted {
		if !e.Held {
			fetched++
		}
	}
	if fetched != maxSets || len(sent) != 10000 {
		t.Errorf("%d fetched, %d events, want %d and %d", fetched, len(sent), maxSets, 10000)
	}
}

// sources are the key sets of a namespace, with its name in their addresses.
func sources(base, namespace string, count int) (list []policies.WantedKeySet) {
	for i := range count {
		k := policies.KeySource{URL: fmt.Sprintf("%s/%s/%04d", base, namespace, i), Timeout: time.Minute}
		list = append(list, policies.WantedKeySet{KeySource: k, Namespace: namespace})
	}
	return list
}

// TestShareOfSets checks that a namespace with many key sets keeps none from being fetched that others had, or that are within their share,
// and that a key set which was too many is fetched when there is room.
func TestShareOfSets(t *testing.T) {
	var sent events
	f := fetcher(&sent)
	many := sources("https://x.example", "aaa", 2*maxSets)
	bank := sources("https://x.example", "bank", 2*shareOfSets)
	late := sources("https://x.example", "zoo", shareOfSets)
	f.want(bank...)
	f.want(append(many, bank...)...)
	f.want(slices.Concat(many, bank, late)...)
	for _, k := range slices.Concat(bank, late) {
		if f.fetches.Wanted[k.KeySource].Held {
			t.Fatalf("%s is not fetched", k.URL)
		}
	}
	last := many[len(many)-1]
	if e := f.fetches.Wanted[last.KeySource]; !e.Held || e.State.Failure != tooMany {
		t.Errorf("the last of too many: %+v", e)
	}
	f.want(slices.Concat([]policies.WantedKeySet{last}, bank, late)...)
	if e := f.fetches.Wanted[last.KeySource]; e.Held || e.State.Failure != waiting {
		t.Errorf("when there is room: %+v", e)
	}
}

// TestSlowServers checks that servers which do not answer leave places for the key sets of other namespaces.
func TestSlowServers(t *testing.T) {
	s := serve(t)
	var sent events
	good, fetched := policies.KeySource{URL: s.URL + "/keys"}, make(chan string, 1)
	f := fetcher(&sent)
	client := NewClient(Options{Local: true})
	f.fetches.Fetch = func(ctx context.Context, k policies.KeySource) (string, error) {
		got, err := client.Fetch(ctx, k)
		if k == good {
			fetched <- got
		}
		return got, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.fetches.Run(ctx, nil, func(context.Context) {
			slow := slices.Concat(sources(s.URL+"/slow", "aaa", 64), sources(s.URL+"/slow", "bbb", 64))
			f.want(append(slow, policies.WantedKeySet{KeySource: good, Namespace: "zoo"}, policies.WantedKeySet{KeySource: good, Namespace: "aaa"})...)
		}, nil)
	}()
	if got := <-fetched; got != keys {
		t.Errorf("the keys of another namespace: %q", got)
	}
	cancel()
	<-ended
}

// TestStartsPerPeriod checks that a namespace whose fetches fail at once starts a bounded number of them per period, that another namespace
// still starts its own, and that the rest follows in the next period.
func TestStartsPerPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent events
		f := fetcher(&sent)
		var mu sync.Mutex
		tried := map[policies.KeySource]bool{}
		f.fetches.Fetch = func(_ context.Context, k policies.KeySource) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			tried[k] = true
			return "", errors.New("refused")
		}
		among := func(list []policies.WantedKeySet) (n int) {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			for _, k := range list {
				if tried[k.KeySource] {
					n++
				}
			}
			return n
		}
		many, one := sources("https://192.0.2.1", "aaa", maxStarts+10), sources("https://192.0.2.1", "zoo", 1)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			f.fetches.Run(ctx, nil, func(context.Context) { f.want(slices.Concat(many, one)...) }, nil)
		})
		if n := among(many); n != maxStarts {
			t.Errorf("%d fetches in the first period, want %d", n, maxStarts)
		}
		if among(one) != 1 {
			t.Error("another namespace waits")
		}
		<-time.After(time.Second)
		if n := among(many); n != len(many) {
			t.Errorf("%d of %d were tried after the next period", n, len(many))
		}
		cancel()
		running.Wait()
	})
}

var _ source.Sink = (*events)(nil)

// A context that has ended ends a fetch.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewClient(Options{}).Fetch(ctx, policies.KeySource{URL: "http://192.0.2.1/"}); err == nil {
		t.Error("no error")
	}
}
