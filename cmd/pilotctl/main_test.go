package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pilotctl": main})
}

// kubeconfigOf is a kubeconfig for the server of files, which the scripts find in the file kubeconfig.
const kubeconfigOf = `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {token: t}}]}
`

// TestScripts runs the programs of testdata. $CONTROLPLANE is the address of pages with known content, and $FILES of a server of the files of the
// script, instead of an Envoy, a control plane or an API server.
func TestScripts(t *testing.T) {
	pages := httptest.NewServer(known(t))
	t.Cleanup(pages.Close) // the scripts run after this function
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("CONTROLPLANE", pages.URL)
			serve := http.FileServer(http.Dir(e.WorkDir))
			files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				serve.ServeHTTP(w, r)
			}))
			e.Defer(files.Close)
			e.Setenv("FILES", files.URL)
			kubeconfig := fmt.Sprintf(kubeconfigOf, files.URL)
			if err := os.WriteFile(filepath.Join(e.WorkDir, "kubeconfig"), []byte(kubeconfig), 0o600); err != nil {
				return err
			}
			e.Setenv("HOST", strings.TrimPrefix(pages.URL, "http://"))
			return nil
		},
		RequireExplicitExec: true,
		UpdateScripts:       *update,
	})
}
