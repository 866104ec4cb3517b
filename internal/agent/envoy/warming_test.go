package envoy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestWarming: Envoy is asked for names only if there are some, and not for many.
func TestWarming(t *testing.T) {
	const (
		clusters  = "/config_dump?resource=dynamic_warming_clusters&mask=cluster.name"
		listeners = "/config_dump?resource=dynamic_listeners&mask=name,warming_state.last_updated"
	)
	stats := func(state, epoch, clusters, listeners int) string {
		return fmt.Sprintf("server.state: %d\nserver.hot_restart_epoch: %d\n%s: %d\n%s: %d\n", state, epoch, warmingClusters, clusters, warmingListeners, listeners)
	}
	for name, c := range map[string]struct {
		stats, clusters, listeners string
		want                       string
		reason                     string
	}{
		"nothing":  {stats: stats(0, 1, 0, 0), want: "{false [] [] false false}"},
		"starting": {stats: stats(3, 1, 4, 5), want: "{true [] [] false false}"},
		"draining": {stats: stats(1, 1, 0, 0), want: "{false [] [] false false}"},
		"many":     {stats: stats(0, 1, 21, 21), want: "{false [] [] true true}"},
		"some": {
			stats:     stats(0, 1, 2, 1),
			clusters:  `{"configs": [{"@type": "x", "cluster": {"@type": "y", "name": "b"}}, {"cluster": {"name": "a|80"}}]}`,
			listeners: `{"configs": [{"name": "active"}, {"name": "l", "warming_state": {"last_updated": "2026-11-24T11:37:15.601Z"}}]}`,
			want:      "{false [a|80 b] [l] false false}",
		},
		"gone meanwhile": {stats: stats(0, 1, 1, 0), clusters: `{}`, want: "{false [] [] false false}"},
		"garbage":        {stats: stats(0, 1, 1, 0), clusters: `<html>`, reason: "config_dump"},
		"other epoch":    {stats: stats(0, 0, 0, 0), reason: "the Envoy of epoch 1 does not answer yet"},
		"no statistics":  {stats: "server.state: 0\n", reason: ErrUntold.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				page := map[string]string{clusters: c.clusters, listeners: c.listeners}[r.URL.String()]
				if r.URL.Path == "/stats" && r.URL.Query().Get("filter") == warmingStats && r.URL.Query().Get("type") == "Gauges" {
					page = c.stats
				}
				if page == "" {
					http.Error(w, "nobody should ask for "+r.URL.String(), http.StatusNotFound)
					return
				}
				_, _ = io.WriteString(w, page) // the client notices what is missing
			}))
			defer server.Close()
			a := NewAdmin(strings.TrimPrefix(server.URL, "http://"))
			a.Expect(1)
			got, err := a.Warming(t.Context())
			switch {
			case c.reason != "":
				if err == nil || !strings.Contains(err.Error(), c.reason) || errors.Is(err, ErrUntold) != (name == "no statistics") {
					t.Errorf("%v, want %s", err, c.reason)
				}
			case err != nil || fmt.Sprint(got) != c.want:
				t.Errorf("%v, %v; want %s", got, err, c.want)
			}
		})
	}
}
