package query

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// TestExplain checks that an explanation contains the rows of an output, including absent ones, with their last revisions.
func TestExplain(t *testing.T) {
	w := newFixture(Options{Strict: true})
	w.g.Commit(func(tx *store.Txn) { w.fill(tx, 20, 0) })
	w.classes.Observe("n0", func(state, bool) {})
	w.finish()
	w.g.Commit(func(tx *store.Txn) { w.rules.Set(tx, "rs10", rule{Host: "s10", Policy: "edited"}) })

	id, ok := w.clusters.Element("", "s10|1")
	if !ok {
		t.Fatal("no cell yields the output")
	}
	var got []string
	for _, leaf := range w.g.Explain(id).Leaves() {
		got = append(got, fmt.Sprintf("%s(%s)@%d absent=%v", leaf.Query, leaf.Key, leaf.Changed, leaf.Absent))
	}
	want := []string{
		"services(s10)@1 absent=false", "rules by host(s10)@1 absent=false", "rules(rs10)@2 absent=false",
		"endpoints(s10)@1 absent=false", "services by layer()@1 absent=false", "settings(every cluster)@0 absent=true",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("s10|1 is explained by\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, ok := w.clusters.Element("", "nothing"); ok {
		t.Error("an output that does not exist has a cell")
	}
}
