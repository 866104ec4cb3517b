package cluster

import (
	"net/http"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// TestBundlesAreKept: what one replica keeps, the next one reads; revisions do not mix; a change that another replica makes at the same time is not
// lost; equal content is not written again; and an error names the missing rule.
func TestBundlesAreKept(t *testing.T) {
	server := &mapServer{all: map[string]*core.ConfigMap{}}
	access := &rest.Config{Host: "http://cluster.test", Transport: server, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	of := func(revision string) *Bundles {
		b, err := NewBundles(access, "istio-system", revision)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	add := func(b *Bundles, text string, during func()) error {
		return b.Update(t.Context(), func(kept []byte) []byte {
			if during != nil {
				during()
				during = nil
			}
			return []byte(string(kept) + text)
		})
	}
	want := func(when, revision, kept string, writes int) {
		t.Helper()
		got := ""
		if err := of(revision).Update(t.Context(), func(kept []byte) []byte { got = string(kept); return kept }); err != nil {
			t.Error(err)
		}
		if got != kept || server.writes != writes {
			t.Errorf("%s: %q after %d writes, want %q after %d", when, got, server.writes, kept, writes)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want("at first", "default", "", 0)
	must(add(of("default"), "a", func() { must(add(of("canary"), "x", nil)) })) // the other one creates the ConfigMap
	want("created", "default", "a", 2)
	must(add(of("default"), "b", func() { must(add(of("default"), "c", nil)) }))
	want("changed by two", "default", "acb", 4)
	want("another revision", "canary", "x", 4)
	must(of("canary").Update(t.Context(), func([]byte) []byte { return nil }))
	want("nothing is wanted", "canary", "", 5)
	if keys := len(server.all[bundlesMap].Data); keys != 1 {
		t.Errorf("there are %d keys, want the one that has roots", keys)
	}
	server.refuses = http.StatusForbidden
	if err := add(of("default"), "d", nil); err == nil || !strings.Contains(err.Error(), "resourceNames: [pilot-bundles]") {
		t.Errorf("forbidden: %v", err)
	}
}
