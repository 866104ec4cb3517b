package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestVerdicts(t *testing.T) {
	m := measured{
		"endpoint-1k/cpu":     {8, 30, 9},    // judged by the median
		"silent-1k/closed":    {11, 16, 12},  // judged by the worst
		"reconnect-1k/cpu":    {1.5, 2, 1.2}, // over its bar
		"endpoint-1k/bytes":   {240},         // has none
		"virtualservice-1k/x": {1},           // is no figure
	}
	want := map[string]string{"endpoint-1k/cpu": "PASS", "silent-1k/closed": "MISS", "reconnect-1k/cpu": "MISS", "endpoint-1k/bytes": ""}
	list := lines(m, nil)
	if len(list) != len(want) {
		t.Errorf("%d lines, want %d", len(list), len(want))
	}
	for _, l := range list {
		if l.Verdict != want[l.Key] {
			t.Errorf("%s: verdict %q, want %q", l.Key, l.Verdict, want[l.Key])
		}
	}
}

func TestFiguresAreUnique(t *testing.T) {
	seen := make(map[string]bool)
	for _, f := range figures() {
		name, _, ok := strings.Cut(f.key, "/")
		if !ok || name == "" || seen[f.key] {
			t.Errorf("figure %q is malformed or there twice", f.key)
		}
		seen[f.key] = true
	}
}

// TestStore stores a run, then one that measured fewer figures: the others keep their lines, and the measured ones are compared.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	when := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	if err := store(dir, when, measured{"endpoint-1k/cpu": {8}, "churn/cores": {0.3}}, nil); err != nil {
		t.Fatal(err)
	}
	before, err := stored(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := store(dir, when.AddDate(0, 0, 1), measured{"endpoint-1k/cpu": {4}}, before); err != nil {
		t.Fatal(err)
	}
	after, err := stored(dir)
	if err != nil {
		t.Fatal(err)
	}
	if after["endpoint-1k/cpu"].median != 4 || after["churn/cores"].median != 0.3 {
		t.Errorf("stored %v, want 4 and the earlier 0.3", after)
	}
	if !strings.Contains(after["endpoint-1k/cpu"].text, "0.50") {
		t.Errorf("no ratio to the earlier run in %q", after["endpoint-1k/cpu"].text)
	}
	for _, name := range []string{"latest.txt", "2026-05-04.txt", "2026-05-05.txt"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestStoredRefusesOtherText(t *testing.T) {
	for _, text := range []string{"endpoint-1k/cpu 1 2\n", "endpoint-1k/cpu x 1 - - - - - ms\n"} {
		if _, err := readTable(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("reading %q: error %v, want one that names the line", text, err)
		}
	}
}

func TestQuantile(t *testing.T) {
	samples := []float64{5, 1, 4, 2, 3}
	for _, c := range []struct{ q, want float64 }{{0, 1}, {0.5, 4}, {0.99, 5}, {1, 5}} {
		if got := quantile(samples, c.q); got != c.want {
			t.Errorf("quantile %v is %v, want %v", c.q, got, c.want)
		}
	}
	if got := median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("median is %v, want 2.5", got)
	}
}
