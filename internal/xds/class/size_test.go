package class_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// The maximum average size in bytes of the resources of a mesh of 1,000 services in a State-of-the-World response. This
// is what Istio (August 2026) was measured to send for such services.
const (
	clusterBudget     = 1140
	virtualHostBudget = 505
	assignmentBudget  = 300 // with two endpoints
)

// TestSizes: what a proxy is sent for a service is small. The golden file has the sizes, so that every added byte is
// noticed.
func TestSizes(t *testing.T) {
	w, l := meshtest.New(t), meshtest.Large{Services: 1000}
	w.Put(l.Objects()...)
	s := w.State(w.Connect(l.Proxies(t)[0]))
	var out strings.Builder
	report := func(what string, n, bytes, budget int) {
		if n < 900 {
			t.Fatalf("%d of %s: most are missing", n, what)
		}
		fmt.Fprintf(&out, "%s: %d, %d bytes each\n", what, n, bytes/n)
		if bytes > n*budget {
			t.Errorf("%s take %d bytes on average, at most %d are meant", what, bytes/n, budget)
		}
	}
	for _, k := range []struct {
		typ    resource.Type
		budget int
	}{{resource.Cluster, clusterBudget}, {resource.Endpoint, assignmentBudget}} {
		n, bytes := 0, 0
		for r := range s.Types[k.typ].All() {
			if strings.HasPrefix(r.Name(), "outbound|80||") {
				n, bytes = n+1, bytes+r.SizeSotW()
			}
		}
		report(k.typ.String(), n, bytes, k.budget)
	}
	routes, ok := s.Get(resource.Route, "80")
	if !ok {
		t.Fatal("no route configuration 80")
	}
	report("virtual hosts", routes.Pieces().Len(), routes.SizeSotW(), virtualHostBudget)
	golden(t, "testdata/sizes.txt", out.String())
}
