package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/registries/servers"
)

// TestMain is also the process of its own that parts of measurements need.
func TestMain(m *testing.M) {
	if task := os.Getenv(apartEnv); task != "" {
		report(runApart(context.Background(), task))
		return
	}
	m.Run()
}

// TestAllCases runs every case in a small mesh: none may have rotted, and every figure must be there. The test does
// not check how large the figures are, except that no unchanged resource may be sent.
func TestAllCases(t *testing.T) {
	if testing.Short() {
		t.Skip("runs all cases, which takes minutes")
	}
	o := options{
		run: regexp.MustCompile(""), quick: true, json: true, results: t.TempDir(), conns: 4,
		sizes: sizes{
			tiny: 100, small: 1000, large: 1100, streams: 40, fewer: 20,
			churn: 300 * time.Millisecond, settle: 20 * time.Millisecond, stall: 400 * time.Millisecond, unheard: 100 * time.Millisecond, idle: time.Second, queries: 2 * time.Second,
		},
	}
	var out bytes.Buffer
	if err := execute(t.Context(), o, false, &out); err != nil {
		t.Fatal(err)
	}
	var list []line
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]line)
	for _, l := range list {
		got[l.Key] = l
	}
	for _, f := range figures() {
		l, ok := got[f.key]
		if !ok {
			if !unmeasurable(t, f.key) {
				t.Errorf("%s was not measured", f.key)
			}
			continue
		}
		switch {
		case f.unit == "cells" && f.bar == 0 && f.barred, f.unit == "resources":
			if l.Max != 0 {
				t.Errorf("%s is %v, want 0", f.key, l.Max)
			}
		case f.unit == "cells" && l.Median == 0:
			t.Errorf("%s is 0: nothing was measured", f.key)
		}
	}
}

// unmeasurable reports that a figure needs a program that this machine does not have: Envoy, or the Consul of make tools-registries.
func unmeasurable(t *testing.T, key string) bool {
	var err error
	switch {
	case strings.HasPrefix(key, "three-envoys/"), strings.HasPrefix(key, "demand-10k/"), strings.HasPrefix(key, "edit-envoy-1k/"), strings.HasPrefix(key, "edits-10k/"):
		_, _, err = envoy.Find(t.Context(), "../..")
	case strings.HasPrefix(key, "registries-"):
		_, err = servers.NewConsul("../..", t.TempDir())
	}
	return err != nil
}

func TestNothingMatches(t *testing.T) {
	o := options{run: regexp.MustCompile("nosuchcase"), results: t.TempDir(), sizes: standard()}
	if err := execute(t.Context(), o, true, io.Discard); err == nil {
		t.Error("a -run that matches nothing is no error")
	}
}
