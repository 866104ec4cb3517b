package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	security "istio.io/api/security/v1beta1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source/kept"
)

// mapServer is an API server that has ConfigMaps, as a transport of HTTP. It refuses an update of a version that is not the last.
type mapServer struct {
	mu      sync.Mutex
	all     map[string]*core.ConfigMap
	version int
	writes  int
	refuses int // the status of its answers to writes; 0 to obey
}

// RoundTrip implements http.RoundTripper.
func (m *mapServer) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/istio-system/configmaps"), "/")
	is := m.all[name]
	if r.Method == http.MethodGet {
		if is == nil {
			return refusal(http.StatusNotFound, metav1.StatusReasonNotFound), nil
		}
		return body(http.StatusOK, is), nil
	}
	in := &core.ConfigMap{}
	if err := json.NewDecoder(r.Body).Decode(in); err != nil {
		return nil, err
	}
	switch {
	case m.refuses == http.StatusForbidden:
		return refusal(http.StatusForbidden, metav1.StatusReasonForbidden), nil
	case r.Method == http.MethodPost && m.all[in.Name] != nil:
		return refusal(http.StatusConflict, metav1.StatusReasonAlreadyExists), nil
	case r.Method == http.MethodPut && in.ResourceVersion != is.ResourceVersion:
		return refusal(http.StatusConflict, metav1.StatusReasonConflict), nil
	}
	m.writes++
	m.version++
	in.ResourceVersion = fmt.Sprint(m.version)
	m.all[in.Name] = in
	return body(http.StatusOK, in), nil
}

func refusal(code int, reason metav1.StatusReason) *http.Response {
	return body(code, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: int32(code)})
}

func body(code int, o any) *http.Response {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(o); err != nil {
		panic(err)
	}
	return w.Result()
}

// kept returns the names of the policies in all ConfigMaps, and how often something was written.
func (m *mapServer) kept(t *testing.T) (names []string, writes int) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range kept.Parts {
		if c := m.all[fmt.Sprintf("map-%d", i)]; c != nil {
			all, err := kept.Decode(c.BinaryData["key"])
			if err != nil {
				t.Error(err)
			}
			for _, o := range all {
				names = append(names, o.Name)
			}
		}
	}
	return names, m.writes
}

// set changes the objects of the API server.
func (m *mapServer) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// TestPoliciesAreKept: the leader writes nothing before it knows everything, then the differences; it repairs changes by others,
// and repeats refused writes.
func TestPoliciesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &mapServer{all: map[string]*core.ConfigMap{}}
		p, err := NewPolicies(&rest.Config{Host: "http://cluster.test", Transport: server, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, "istio-system")
		if err != nil {
			t.Fatal(err)
		}
		p.Map, p.Key, p.Book, p.Log = func(i int) string { return fmt.Sprintf("map-%d", i) }, "key", &kept.Book{}, slog.New(slog.NewTextHandler(t.Output(), nil))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.Run(ctx); close(ended) }()
		defer func() { cancel(); <-ended }()
		check := func(when string, after time.Duration, writes int, want ...string) {
			t.Helper()
			<-time.After(after)
			synctest.Wait()
			if names, n := server.kept(t); n != writes || strings.Join(names, " ") != strings.Join(want, " ") {
				t.Errorf("%s: %v after %d writes, want %v after %d", when, names, n, want, writes)
			}
		}
		o, err := api.Object{Key: api.Key{Namespace: "bank", Name: "a"}, Spec: &security.PeerAuthentication{}}.Seal()
		if err != nil {
			t.Fatal(err)
		}
		p.Book.Put(o)
		check("not everything is known", time.Minute, 0)
		p.Book.Complete()
		check("everything is known", 2*time.Second, 1, "a")
		check("nothing has changed", time.Hour, 1, "a")
		server.set(func() {
			for _, c := range server.all {
				c.BinaryData = nil
			}
		})
		check("somebody has emptied them", policiesAnew+2*time.Second, 2, "a")
		server.set(func() { server.refuses = http.StatusForbidden })
		b := *o
		b.Name = "b"
		p.Book.Put(&b)
		check("writing is forbidden", time.Minute, 2, "a")
		server.set(func() { server.refuses = 0 })
		check("writing is allowed", 2*time.Minute, 3, "a", "b")
		p.Book.Drop(o.Key)
		check("one is deleted", 2*time.Second, 4, "b")
	})
}
