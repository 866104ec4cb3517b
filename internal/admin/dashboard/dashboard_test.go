package dashboard_test

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/admin/dashboard"
)

var update = flag.Bool("update", false, "rewrite the dashboard")

// TestFile: the dashboard that comes with Pilot is made from the table. Grafana names panels by their number, so none is twice.
func TestFile(t *testing.T) {
	const file = "../../../manifests/dashboards/pilot.json"
	want, err := dashboard.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
		t.Errorf("%s is not made from the table; run `go test ./internal/admin/dashboard -update`: %v", file, err)
	}
	var read struct{ Panels []struct{ ID int } }
	if err := json.Unmarshal(want, &read); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range read.Panels {
		if p.ID == 0 || seen[p.ID] {
			t.Errorf("the panel %d is twice, or has no number", p.ID)
		}
		seen[p.ID] = true
	}
}

// TestMetrics: the control plane has the metrics that the dashboard asks it for, and its page of metrics explains them.
func TestMetrics(t *testing.T) {
	page, err := os.ReadFile("../../../doc/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range dashboard.Rows() {
		for _, p := range row.Panels {
			for _, name := range regexp.MustCompile(`\b(pilot|citadel)_\w+`).FindAllString(p.Query, -1) {
				if !strings.Contains(string(page), "| `"+strings.TrimSuffix(name, "_bucket")+"` |") {
					t.Errorf("%s: there is no metric %s", p.Title, name)
				}
			}
		}
	}
}
