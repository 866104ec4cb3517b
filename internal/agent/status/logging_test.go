package status

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/config/logging"
)

// TestLogging: levels of the agent's log are read and set over loopback only.
func TestLogging(t *testing.T) {
	w := &world{}
	log := logging.New(io.Discard, false, []logging.Part{{Name: "xds", Logs: "streams"}})
	h := Handler(Parts{Envoy: w, Life: w, Discovery: w, Secrets: w, Probes: http.NotFoundHandler(), Log: logging.For(log, "xds")})
	for _, c := range []struct {
		method, from string
		code         int
		want         string
	}{
		{"GET", "127.0.0.1:4000", http.StatusOK, `"level": "info"`},
		{"PUT", "10.0.0.1:4000", http.StatusForbidden, ""},
		{"GET", "127.0.0.1:4000", http.StatusOK, `"level": "info"`},
		{"PUT", "127.0.0.1:4000", http.StatusOK, `"level": "debug"`},
	} {
		r := httptest.NewRequest(c.method, "/debug/logging?level=xds:debug", nil)
		r.Host, r.RemoteAddr = "localhost", c.from
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != c.code || !strings.Contains(rec.Body.String(), c.want) {
			t.Errorf("%s from %s: %d %s", c.method, c.from, rec.Code, rec.Body)
		}
	}
	if list := logging.Of(log).List(); list[0].Level != "debug" || list[1].Level != "info" {
		t.Errorf("%+v", list)
	}
}
