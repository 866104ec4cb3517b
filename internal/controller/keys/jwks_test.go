package keys

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

// TestLastGoodKept checks that keys stay when they cannot be fetched any more, that attempts become rarer, and that a
// key set that is no longer wanted is forgotten.
func TestLastGoodKept(t *testing.T) {
	var sent events
	k := policies.KeySource{URL: "https://a.example/keys"}
	f := &Fetcher{Sink: &sent, Log: slog.New(slog.DiscardHandler), known: map[policies.KeySource]*entry{}}
	f.follow([]policies.WantedKeySet{{KeySource: k}})
	finish := func(r result) policies.KeySet {
		f.running++
		r.source = k
		f.finish(r)
		return f.known[k].set
	}
	if got := finish(result{keys: keys}); got != (policies.KeySet{Keys: keys}) {
		t.Fatalf("%+v", got)
	}
	pause := time.Duration(0)
	for range 20 {
		if got := finish(result{failure: "gone"}); got != (policies.KeySet{Keys: keys, Failure: "gone"}) {
			t.Fatalf("%+v", got)
		}
		if p := f.known[k].pause; p <= pause && p != longestPause {
			t.Fatalf("%v after %v", p, pause)
		}
		pause = f.known[k].pause
	}
	if pause != longestPause || len(sent) != 3 {
		t.Errorf("pause %v, %d events, want the longest and 3", pause, len(sent))
	}
	f.follow(nil)
	if len(f.known) != 0 || len(sent) != 4 || !sent[3].Removed() {
		t.Errorf("%d known, %v", len(f.known), sent)
	}
	f.running++
	f.finish(result{source: k, keys: keys}) // no longer wanted
	if len(sent) != 4 {
		t.Errorf("%v", sent)
	}
}

// TestBounds checks that a thousand key sets is the limit.
func TestBounds(t *testing.T) {
	var sent events
	f := &Fetcher{Sink: &sent, known: map[policies.KeySource]*entry{}}
	var wanted []policies.WantedKeySet
	for i := range 10000 {
		wanted = append(wanted, policies.WantedKeySet{KeySource: policies.KeySource{URL: fmt.Sprintf("https://a.example/%d", i)}})
	}
	f.follow(wanted)
	fetched := 0
	for _, e := range f.known {
		if !e.excess {
			fetched++
		}
	}
	if fetched != maxSets || len(sent) != len(wanted) {
		t.Errorf("%d fetched, %d events, want %d and %d", fetched, len(sent), maxSets, len(wanted))
	}
}

// sources are the key sets of a namespace, with its name in their addresses.
func sources(base, namespace string, count int) (list []policies.WantedKeySet) {
	for i := range count {
		k := policies.KeySource{URL: fmt.Sprintf("%s/%s/%d", base, namespace, i), Timeout: time.Minute}
		list = append(list, policies.WantedKeySet{KeySource: k, Namespace: namespace})
	}
	return list
}

// TestShareOfSets checks that a namespace with many key sets keeps none from being fetched that others had, or that are within their share,
// and that a key set which was too many is fetched when there is room.
func TestShareOfSets(t *testing.T) {
	var sent events
	f := &Fetcher{Sink: &sent, known: map[policies.KeySource]*entry{}}
	many := sources("https://x.example", "aaa", 2*maxSets)
	bank := sources("https://x.example", "bank", 2*shareOfSets)
	late := sources("https://x.example", "zoo", shareOfSets)
	f.follow(bank)
	f.follow(append(many, bank...))
	f.follow(slices.Concat(many, bank, late))
	for _, k := range slices.Concat(bank, late) {
		if f.known[k.KeySource].excess {
			t.Fatalf("%s is not fetched", k.URL)
		}
	}
	last := many[len(many)-1]
	if e := f.known[last.KeySource]; !e.excess || e.set.Failure != tooMany {
		t.Errorf("the last of too many: %+v", e)
	}
	f.follow(slices.Concat([]policies.WantedKeySet{last}, bank, late))
	if e := f.known[last.KeySource]; e.excess || e.set.Failure != waiting || !e.next.IsZero() {
		t.Errorf("when there is room: %+v", e)
	}
}

// TestSlowServers checks that servers which do not answer leave places for the key sets of other namespaces.
func TestSlowServers(t *testing.T) {
	s := serve(t)
	var sent events
	f := &Fetcher{
		Sink: &sent, Log: slog.New(slog.DiscardHandler), Client: NewClient(Options{Local: true}),
		known: map[policies.KeySource]*entry{}, results: make(chan result, maxFetches), started: map[string]int{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var fetches sync.WaitGroup
	defer fetches.Wait()
	defer cancel()
	slow := slices.Concat(sources(s.URL+"/slow", "aaa", 64), sources(s.URL+"/slow", "bbb", 64))
	f.follow(slow)
	f.start(ctx, &fetches)
	if f.running >= maxFetches {
		t.Fatalf("two namespaces have all %d places", f.running)
	}
	good := policies.KeySource{URL: s.URL + "/keys"}
	f.follow(append(slow, policies.WantedKeySet{KeySource: good, Namespace: "zoo"}, policies.WantedKeySet{KeySource: good, Namespace: "aaa"}))
	f.start(ctx, &fetches)
	if !f.known[good].fetching {
		t.Fatal("the keys of another namespace wait")
	}
	if f.finish(<-f.results); f.known[good].set.Keys == "" {
		t.Errorf("the keys of another namespace: %+v", f.known[good].set)
	}
}

// TestStartsPerPeriod checks that a namespace whose fetches fail at once starts a bounded number of them per period, that another namespace
// still starts its own, and that the rest follows in the next period.
func TestStartsPerPeriod(t *testing.T) {
	var sent events
	f := &Fetcher{
		Sink: &sent, Log: slog.New(slog.DiscardHandler), Client: NewClient(Options{}),
		known: map[policies.KeySource]*entry{}, results: make(chan result, maxFetches), started: map[string]int{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so each fetch fails at once
	var fetches sync.WaitGroup
	settle := func() {
		for f.start(ctx, &fetches); f.running > 0; f.start(ctx, &fetches) {
			f.finish(<-f.results)
		}
	}
	tried := func(list []policies.WantedKeySet) (n int) {
		for _, k := range list {
			if f.known[k.KeySource].pause > 0 {
				n++
			}
		}
		return n
	}
	many, one := sources("https://192.0.2.1", "aaa", maxStarts+10), sources("https://192.0.2.1", "zoo", 1)
	f.follow(many)
	settle()
	if n := tried(many); n != maxStarts {
		t.Errorf("%d fetches in the first period, want %d", n, maxStarts)
	}
	f.follow(slices.Concat(many, one))
	settle()
	if tried(one) != 1 {
		t.Error("another namespace waits")
	}
	f.started = map[string]int{}
	f.queue()
	settle()
	if n := tried(many); n != len(many) {
		t.Errorf("%d of %d were tried after the next period", n, len(many))
	}
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
