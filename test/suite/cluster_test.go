package main

import "testing"

// TestRemedy: why the step is skipped is the tool's advice, not that make gave up.
func TestRemedy(t *testing.T) {
	said := "tools: building etcd\ntools: building etcd 3.6.8: go build: exit status 1\nThe disk is full: make room.\nexit status 1\nmake: *** [Makefile:35: tools-cluster] Error 1\n"
	if got, want := remedy(said), "The disk is full: make room."; got != want {
		t.Errorf("remedy = %q, want %q", got, want)
	}
	if got := remedy(""); got != "no reason given" {
		t.Errorf("remedy of silence = %q", got)
	}
}
