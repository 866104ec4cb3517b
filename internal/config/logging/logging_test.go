package logging

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

var parts = []Part{{Name: "xds", Logs: "streams", Scopes: []string{"ads"}}, {Name: "config", Logs: "objects"}}

// shown returns the levels as text: xds:info config:info core:info.
func shown(l *Levels) string {
	var list []string
	for _, s := range l.List() {
		list = append(list, s.Part+":"+s.Level)
	}
	return strings.Join(list, " ")
}

func TestSet(t *testing.T) {
	for _, c := range []struct{ text, want, err string }{
		{"debug", "xds:debug config:debug core:debug", ""},
		{"default:debug", "xds:debug config:debug core:debug", ""},
		{"all:none", "xds:none config:none core:none", ""},
		{"xds:debug", "xds:debug config:info core:info", ""},
		{"ads:debug", "xds:debug config:info core:info", ""},
		{"xds:debug,warn", "xds:debug config:warn core:warn", ""}, // in any order
		{"default:error, config:warn", "xds:error config:warn core:error", ""},
		{"core:fatal", "xds:info config:info core:error", ""},
		{"xds:", "xds:info config:info core:info", ""},
		{"xds:loud", "xds:info config:info core:info", `"loud" is not a level; write debug, info, warn, error or none`},
		{"debug,loud", "xds:info config:info core:info", `"loud" is not a level`},
		{"xsd:debug", "xds:info config:info core:info", `there is no part "xsd"; the parts are xds, config, core, and all`},
		{"confg:debug", "xds:info config:info core:info", `there is no part "confg"; did you mean config?`},
		{"xds:debug,model:debug", "xds:debug config:info core:info", `there is no part "model"`},
	} {
		l := Of(New(&bytes.Buffer{}, false, parts))
		err := l.Set(c.text)
		if got := shown(l); got != c.want || c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %s, %v; want %s, %s", c.text, got, err, c.want, c.err)
		}
	}
}

// TestParts: a level counts for the loggers of its part, also for loggers that were made before it was set, and for loggers with attributes.
func TestParts(t *testing.T) {
	var out bytes.Buffer
	log := New(&out, true, parts)
	xds, config := For(log, "xds").With("a", 1).WithGroup("g"), For(log, "config")
	if err := Of(log).Set("xds:debug,config:none"); err != nil {
		t.Fatal(err)
	}
	xds.Debug("one")
	config.Error("two")
	log.Debug("three")
	log.Info("four")
	For(log, "nobody").Info("five")
	if got := out.String(); strings.Count(got, "\n") != 3 || !strings.Contains(got, `"one"`) || !strings.Contains(got, `"four"`) || !strings.Contains(got, `"five"`) {
		t.Error(got)
	}
	other := slog.New(slog.DiscardHandler)
	if Of(other) != nil || For(other, "xds") != other {
		t.Error("a logger of somebody else has parts")
	}
}

func TestPage(t *testing.T) {
	l := Of(New(&bytes.Buffer{}, false, parts))
	for _, c := range []struct {
		method, target, body, site string
		code                       int
		want, levels               string
	}{
		{"GET", "/", "", "", 200, `"logs": "streams"`, "xds:info config:info core:info"},
		{"GET", "/?level=debug", "", "", 200, `"level": "info"`, "xds:info config:info core:info"}, // reading changes nothing
		{"PUT", "/?level=xds:debug", "", "", 200, `"level": "debug"`, "xds:debug config:info core:info"},
		{"POST", "/", "config:warn\n", "", 200, `"level": "warn"`, "xds:debug config:warn core:info"},
		{"POST", "/?level=none", "", "cross-site", 403, "", "xds:debug config:warn core:info"},
		{"PUT", "/", "", "", 400, "?level=PART:LEVEL", "xds:debug config:warn core:info"},
		{"PUT", "/", "xds:loud", "", 400, "not a level", "xds:debug config:warn core:info"},
		{"PUT", "/", strings.Repeat("x", maxText+1), "", 400, "too large", "xds:debug config:warn core:info"},
		{"DELETE", "/", "", "", 405, "PUT", "xds:debug config:warn core:info"},
		{"PUT", "/", "all:info", "", 200, "", "xds:info config:info core:info"},
	} {
		r := httptest.NewRequest(c.method, c.target, strings.NewReader(c.body))
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		w := httptest.NewRecorder()
		var page http.Handler = l
		page.ServeHTTP(w, r)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) || shown(l) != c.levels {
			t.Errorf("%s %s %.20q: %d %s, then %s", c.method, c.target, c.body, w.Code, w.Body, shown(l))
		}
	}
}
