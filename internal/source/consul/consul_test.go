package consul

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/source/registries"
)

// fake is a Consul whose answers a test decides.
type fake struct {
	*testing.T
	site *httptest.Server

	mu       sync.Mutex
	index    uint64
	services map[string]string // address of the only instance, by name
	header   map[string]string // of each answer
	nodes    map[string]string // node of that instance, by name; "n" if there is none
	modified map[string]uint64 // index of the last change of that instance
	checked  map[string]uint64 // index of the last change of its check, or of the check of a node
	streams  bool              // blocking queries are answered by the streaming backend
	status   int
	asked    []*http.Request
	changed  chan struct{} // is closed with each change
}

func newFake(t *testing.T) *fake {
	f := &fake{T: t, index: 10, services: map[string]string{own: "192.0.2.200"}, status: http.StatusOK, changed: make(chan struct{})}
	f.site = httptest.NewServer(f)
	t.Cleanup(f.site.Close)
	return f
}

// change changes the server, and wakes blocking queries.
func (f *fake) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

// ServeHTTP implements http.Handler. A query with an index blocks until a change.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r)
	if at, _ := strconv.ParseUint(r.URL.Query().Get("index"), 10, 64); at > 0 && at == f.index {
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		f.mu.Lock()
	}
	w.Header().Set("X-Consul-Index", strconv.FormatUint(f.indexOf(r.URL.Path), 10))
	header := f.header
	if f.streams && r.URL.Query().Has("index") && strings.HasPrefix(r.URL.Path, "/v1/health/service/") {
		header = map[string]string{"X-Consul-KnownLeader": "false", "X-Consul-Query-Backend": "streaming"}
	}
	for k, v := range header {
		w.Header().Set(k, v)
	}
	w.WriteHeader(f.status)
	if name, ok := strings.CutPrefix(r.URL.Path, "/v1/health/service/"); ok && f.services[name] == "" {
		_, _ = w.Write([]byte("[]"))
		return
	} else if ok {
		fmt.Fprintf(w, `[{"Node": {"Node": %q}, "Service": {"ID": "1", "Address": %q, "Port": 80}}]`, f.node(name), f.services[name])
		return
	}
	if f.serveNodes(w, r.URL.Path) {
		return
	}
	names := map[string][]string{}
	for name := range f.services {
		names[name] = []string{}
	}
	_ = json.NewEncoder(w).Encode(names)
}

// heard is a listener that passes on each call as text.
type heard chan string

func text(all registries.Services) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] == nil {
			parts = append(parts, name+" gone")
			continue
		}
		for _, in := range all[name].Instances {
			parts = append(parts, name+" "+in.Address)
		}
	}
	return strings.Join(parts, ", ")
}

func (h heard) List(all registries.Services, sure bool) {
	h <- fmt.Sprintf("list %s %v", text(all), sure)
}
func (h heard) Change(some registries.Services) { h <- "change " + text(some) }
func (h heard) Lost(err error)                  { h <- "lost " + err.Error() }
func (h heard) Refused(err error)               { h <- "refused " + err.Error() }
func (heard) Remark([]registries.Remark)        {}
func (heard) Objects(registries.ObjectChange)   {}
func (heard) Listed()                           {}

// next returns the next call. Repeated errors are left out.
func (f *fake) next(h heard, last string) string {
	f.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for {
		select {
		case got := <-h:
			if got != last {
				return got
			}
		case <-limit.C:
			f.Fatal("nothing is heard")
		}
	}
}

func (f *fake) follow(auth map[string]string) heard {
	e := registries.Entry{Type: registries.Consul, Scheme: "http", Addresses: []string{strings.TrimPrefix(f.site.URL, "http://")}, ConsulWait: time.Minute, ConsulDatacenter: "dc9"}
	r, err := New(e, registries.Access{Auth: auth}, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	h := make(heard, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx, h)
	}()
	f.Cleanup(func() {
		cancel()
		<-done
	})
	return h
}

// TestFollow: changes arrive by blocking queries, one by one; a service that the catalog does not have any more is gone.
func TestFollow(t *testing.T) {
	f := newFake(t)
	f.services["web"] = "192.0.2.1"
	h := f.follow(map[string]string{registries.ConsulToken: "s3cret"})
	if got := f.next(h, ""); got != "list web 192.0.2.1 true" {
		t.Fatal(got)
	}
	f.change(func() { f.index, f.services["web"] = 11, "192.0.2.2" })
	if got := f.next(h, ""); got != "change web 192.0.2.2" {
		t.Fatal(got)
	}
	f.change(func() {
		f.index = 12
		delete(f.services, "web")
	})
	if got := f.next(h, ""); got != "change web gone" {
		t.Fatal(got)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.asked {
		if r.Header.Get("X-Consul-Token") != "s3cret" || strings.Contains(r.URL.String(), "s3cret") || r.URL.Query().Get("dc") != "dc9" {
			t.Errorf("%s with the token %q", r.URL, r.Header.Get("X-Consul-Token"))
		}
	}
}

// TestStreaming: answers of the streaming backend, which never names a leader, are changes and no loss of sight. It does not say either that rights
// hide an instance, so that another read does.
func TestStreaming(t *testing.T) {
	f := newFake(t)
	f.services["web"], f.streams = "192.0.2.1", true
	h := f.follow(nil)
	if got := f.next(h, ""); got != "list web 192.0.2.1 true" {
		t.Fatal(got)
	}
	f.change(func() { f.index, f.services["web"] = 11, "192.0.2.2" })
	if got := f.next(h, ""); got != "change web 192.0.2.2" {
		t.Fatal(got)
	}
	f.change(func() {
		f.index, f.services["web"], f.header = 12, "", map[string]string{"X-Consul-Results-Filtered-By-Acls": "true"}
	})
	if got := f.next(h, ""); got != "list  false" {
		t.Fatal(got)
	}
}

// TestLossOfSight: a doubtful answer is no change: the reader reports an error or lists again, and says if the list is not sure.
func TestLossOfSight(t *testing.T) {
	for _, test := range []struct {
		name   string
		do     func(*fake)
		want   []string // the beginnings of the next calls
		undone string   // a call after the cause is gone; empty if it stays
	}{
		{"the index falls", func(f *fake) { f.index, f.services["web"] = 3, "192.0.2.2" }, []string{"list web 192.0.2.2 true"}, ""},
		{"the index is 0", func(f *fake) { f.index = 0 }, []string{"list web 192.0.2.1 true"}, ""},
		{"no leader", func(f *fake) { f.index, f.header = 11, map[string]string{"X-Consul-KnownLeader": "false"} }, []string{"lost /v1/"}, "list web 192.0.2.1 true"},
		{"an error of the server", func(f *fake) { f.index, f.status = 11, 500 }, []string{"lost http"}, "list web 192.0.2.1 true"},
		{"the token is refused", func(f *fake) { f.index, f.status = 11, 403 }, []string{"refused http"}, "list web 192.0.2.1 true"},
		{"the token shows nothing", func(f *fake) { f.index, f.services = 11, map[string]string{} }, []string{"list  false"}, ""},
		{"the token hides something", func(f *fake) { f.index, f.header = 11, map[string]string{"X-Consul-Results-Filtered-By-Acls": "true"} }, []string{"list web 192.0.2.1 false"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFake(t)
			f.services["web"] = "192.0.2.1"
			h := f.follow(nil)
			last := f.next(h, "")
			f.change(func() { test.do(f) })
			for _, want := range test.want {
				if last = f.next(h, ""); !strings.HasPrefix(last, want) {
					t.Fatalf("got %q, want %q", last, want)
				}
			}
			if test.undone == "" {
				return
			}
			f.change(func() { f.index, f.status, f.header = 12, http.StatusOK, nil })
			for got := ""; got != test.undone; {
				if got = f.next(h, last); strings.HasPrefix(got, "change") {
					t.Fatalf("a change without a list: %q", got)
				}
			}
		})
	}
}
