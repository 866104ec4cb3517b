package main

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pilotctl": main})
}

// TestScripts runs the programs of testdata. $CONTROLPLANE is the address of pages with known content.
func TestScripts(t *testing.T) {
	pages := httptest.NewServer(known(t))
	t.Cleanup(pages.Close) // the scripts run after this function
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("CONTROLPLANE", pages.URL)
			e.Setenv("HOST", strings.TrimPrefix(pages.URL, "http://"))
			return nil
		},
		RequireExplicitExec: true,
		UpdateScripts:       *update,
	})
}
