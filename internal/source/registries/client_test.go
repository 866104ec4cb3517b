package registries

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestClient: the next server is asked when one cannot be reached or has an error of its own, and not when it refuses the request. A redirect is not
// followed, because it would take secrets elsewhere; and no error has the query.
func TestClient(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("a redirect was followed to %s", r.URL) }))
	defer elsewhere.Close()
	server := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Secret") != "s" {
				t.Errorf("a request without the header")
			}
			if status == http.StatusFound {
				w.Header().Set("Location", elsewhere.URL)
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	good := server(200, "good")
	for _, test := range []struct {
		name  string
		first string
		want  string // the answer, or a part of the error
	}{
		{"unreachable", "127.0.0.1:1", "good"}, {"an error of the server", server(503, "no leader"), "good"},
		{"refused", server(403, "no\n\tright"), "the server answers 403 Forbidden: no right"}, {"moved", server(http.StatusFound, ""), "the server answers 302"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := NewClient(Entry{Scheme: "http", Addresses: []string{test.first, good}}, Access{}, http.Header{"X-Secret": {"s"}}, 2)
			defer c.Close()
			for range 2 { // the client stays with the server that answers
				a, err := c.Get(t.Context(), 10*time.Second, "/path", url.Values{"secret": {"hunter2"}}, nil)
				got := ""
				if err != nil {
					got = err.Error()
				} else {
					got = string(a.Body)
				}
				if !strings.Contains(got, test.want) || strings.Contains(got, "hunter2") {
					t.Errorf("got %s, want %s", got, test.want)
				}
			}
		})
	}
	c := NewClient(Entry{Scheme: "http", Addresses: []string{"127.0.0.1:1"}}, Access{}, nil, 2)
	if _, err := c.Get(t.Context(), 10*time.Second, "/path", url.Values{"secret": {"hunter2"}}, nil); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "http://127.0.0.1:1") {
		t.Errorf("the error is %v", err)
	}
}

// TestBackoff: pauses begin short and stay below 30 seconds.
func TestBackoff(t *testing.T) {
	b := NewBackoff()
	if first := b.pauses.NextBackOff(); first > time.Second {
		t.Errorf("the first pause is %v", first)
	}
	for range 100 {
		if p := b.pauses.NextBackOff(); p > 30*time.Second || p <= 0 {
			t.Errorf("a pause of %v", p)
		}
	}
	b.Reset()
	if p := b.pauses.NextBackOff(); p > time.Second {
		t.Errorf("the first pause after a success is %v", p)
	}
}
