package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pilot-agent": main})
}

// TestScripts runs the programs of testdata. $PORT is the port of a server that echoes requests, and is ready at the third request
// for /ready.
func TestScripts(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ready":
			if asked.Add(1) < 3 {
				http.Error(w, "not ready: no listeners", http.StatusServiceUnavailable)
			}
		case "/never":
			http.Error(w, "not ready: the proxy is draining", http.StatusServiceUnavailable)
		case "/hang":
			<-r.Context().Done()
		default:
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s\n", r.Method, r.URL, body)
		}
	}))
	t.Cleanup(s.Close) // the scripts run after this function
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("URL", s.URL)
			_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
			e.Setenv("PORT", port)
			return nil
		},
		RequireExplicitExec: true,
	})
}
