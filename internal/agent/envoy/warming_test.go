package envoy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestWarming: Envoy is asked for names of warming resources, about clusters only on request, and for nothing while it starts.
func TestWarming(t *testing.T) {
	const some = `{"configs": [{"@type": "x", "cluster": {"@type": "y", "name": "b"}}, {"cluster": {"name": "a|80"}}]}`
	many := strings.Repeat(`{"name": "l", "warming_state": {"last_updated": "2026-11-24T11:37:15.601Z"}},`, maxWarming)
	for name, c := range map[string]struct {
		state, info, clusters, listeners string // pages; Envoy must not be asked for empty ones
		want                             string
		reason                           string
	}{
		"nothing":              {state: "LIVE\n", clusters: "{}", listeners: "{}", want: "{false [] [] false false}"},
		"starting":             {state: "PRE_INITIALIZING\n", want: "{true [] [] false false}"},
		"about to start":       {state: "INITIALIZING\n", want: "{true [] [] false false}"},
		"draining":             {state: "DRAINING\n", clusters: "{}", listeners: "{}", want: "{false [] [] false false}"},
		"listeners alone":      {state: "LIVE\n", listeners: `{"configs": [{"name": "l", "warming_state": {}}]}`, want: "{false [] [l] false false}"},
		"many":                 {state: "LIVE\n", clusters: "{}", listeners: `{"configs": [` + many + `{"name": "z", "warming_state": {}}]}`, want: fmt.Sprintf("{false [] [l%s] false true}", strings.Repeat(" l", maxWarming-1))},
		"some":                 {state: "LIVE\n", clusters: some, listeners: `{"configs": [{"name": "active"}, {"name": "l", "warming_state": {"last_updated": "2026-11-24T11:37:15.601Z"}}]}`, want: "{false [a|80 b] [l] false false}"},
		"garbage":              {state: "LIVE\n", clusters: "{}", listeners: `<html>`, reason: "config_dump"},
		"the parent":           {info: `{"command_line_options": {"restart_epoch": 0}}`, reason: "the Envoy of epoch 1 does not answer yet"},
		"no longer the parent": {info: `{"command_line_options": {"restart_epoch": 1}}`, state: "INITIALIZING\n", want: "{true [] [] false false}"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				page := map[string]string{"/ready": c.state, "/server_info": c.info}[r.URL.Path]
				switch r.URL.Query().Get("resource") {
				case "dynamic_warming_clusters":
					page = c.clusters
				case "dynamic_listeners":
					if r.URL.Query().Get("name_regex") == noCluster {
						page = c.listeners
					}
				}
				if page == "" {
					http.Error(w, "nobody should ask for "+r.URL.String(), http.StatusNotFound)
					return
				}
				_, _ = io.WriteString(w, page) // the client notices a missing part
			}))
			defer server.Close()
			a := NewAdmin(strings.TrimPrefix(server.URL, "http://"))
			if c.info != "" {
				a.Expect(1)
			}
			got, err := a.Warming(t.Context(), c.clusters != "")
			switch {
			case c.reason != "":
				if err == nil || !strings.Contains(err.Error(), c.reason) {
					t.Errorf("%v, want %s", err, c.reason)
				}
			case err != nil || fmt.Sprint(got) != c.want:
				t.Errorf("%v, %v; want %s", got, err, c.want)
			}
		})
	}
}
