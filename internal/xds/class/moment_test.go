package class_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/meshtest"
)

// TestEditsAtEveryMoment: whichever edit comes at whichever moment of the first build of a class, the state published
// in the end equals the state computed from the rows alone.
func TestEditsAtEveryMoment(t *testing.T) {
	wide, narrow := scopeOf("a/*", "b/*", "c/*"), scopeOf("b/*", "c/*")
	every := 1
	if testing.Short() {
		every = 7 // with the race detector, all moments take minutes
	}
	for _, e := range []struct {
		name, before, after string
	}{
		{"Sidecar narrowed", wide, narrow},
		{"Sidecar widened", narrow, wide},
		{"Sidecar deleted", wide, ""},
		{"Sidecar created", "", narrow},
		{"service hidden", wide, wide + plainService(0, `["."]`)},
		{"services hidden from a class without Sidecar", "", plainService(0, `["."]`) + plainService(1, `["b"]`)},
		{"service shown", wide + plainService(0, `["."]`), wide + plainService(0, `["*"]`)},
		{"rule created", wide, wide + `---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: all, namespace: istio-system}
spec: {host: "*", trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}}
`},
		{"route to another host", "", `---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: moved, namespace: a}
spec: {hosts: [s0.a.svc.cluster.local], http: [{route: [{destination: {host: s1.b.svc.cluster.local}}]}]}
`},
	} {
		t.Run(e.name, func(t *testing.T) {
			for _, portion := range []int{2, 5} {
				for moment := 0; editAtMoment(t, portion, moment, e.before, e.after); moment += every {
				}
			}
		})
	}
}

// editAtMoment replaces one configuration by another after some slices of a first build. It returns false if the build
// was complete by then.
func editAtMoment(t *testing.T, portion, moment int, before, after string) bool {
	t.Helper()
	w := meshtest.NewWith(t, meshtest.Options{Cut: true, Query: query.Options{Portion: portion}})
	for i := range 9 {
		w.Apply(plainService(i, `["*"]`))
	}
	was := map[api.Key]bool{}
	for _, o := range meshtest.Parse(t, before) {
		was[o.Key] = o.Key.Kind != "ServiceEntry"
		w.Put(o)
	}
	w.Settle(1000) // publishes the problems
	w.Connect(meshtest.Node(t, "sidecar~10.1.1.1~web-0.shop~shop.svc.cluster.local", "{}"))
	for range moment {
		if !w.Graph.Slice(3) {
			return false
		}
	}
	for _, o := range meshtest.Parse(t, after) {
		delete(was, o.Key)
		w.Put(o)
	}
	for k, gone := range was {
		if gone {
			w.Delete(k)
		}
	}
	w.Settle(3)
	w.Follow("sidecar~10.1.1.1~web-0.shop~shop.svc.cluster.local") // the edit may have changed its class
	w.Settle(3)
	w.Check()
	if t.Failed() {
		t.Fatalf("the edit came after %d slices, portions of %d elements", moment, portion)
	}
	return true
}

func scopeOf(hosts ...string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: shop}
spec: {egress: [{hosts: ["%s"]}]}
`, strings.Join(hosts, `", "`))
}

// plainService is one of nine services in three namespaces.
func plainService(i int, exportTo string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s%[1]d, namespace: %[2]s}
spec:
  hosts: [s%[1]d.%[2]s.svc.cluster.local]
  exportTo: %[3]s
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.1}]
`, i, []string{"a", "b", "c"}[i%3], exportTo)
}
