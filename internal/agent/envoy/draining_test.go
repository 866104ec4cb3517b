package envoy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestDrainingCounts: connections are counted while a filter chain drains, without connections of Envoy's own listeners and of parts of a sum.
func TestDrainingCounts(t *testing.T) {
	const connections = "listener.0.0.0.0_15006.downstream_cx_active: 3\nlistener.0.0.0.0_15006.worker_0.downstream_cx_active: 3\n" +
		"listener.10.0.0.1_80.downstream_cx_active: 2\nlistener.admin.downstream_cx_active: 1\nlistener.own.downstream_cx_active: 4\n"
	for page, want := range map[string]Draining{
		"listener_manager.total_filter_chains_draining: 0\n" + connections:                                               {},
		"listener_manager.total_filter_chains_draining: 2\n" + connections:                                               {2, 5},
		"listener_manager.total_filter_chains_draining: 1\nlistener_manager.total_listeners_draining: 1\n" + connections: {2, 5},
		"": {},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("type") != "Gauges" || r.URL.Query().Get("filter") != drainingStats {
				http.Error(w, "it asks "+r.URL.String(), http.StatusNotFound)
				return
			}
			_, _ = io.WriteString(w, page) // the client notices a missing part
		}))
		got, err := NewAdmin(strings.TrimPrefix(server.URL, "http://"), "own").Draining(t.Context())
		server.Close()
		if err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", page, got, err, want)
		}
	}
}
