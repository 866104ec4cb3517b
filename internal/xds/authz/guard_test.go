package authz_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/policies"
	"github.com/pilotmesh/pilot/internal/state/selected"
	"github.com/pilotmesh/pilot/internal/view/policy"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/authz"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestDenyOnPanic checks that a workload denies everything if a policy that applies to it makes the translation panic, and that others
// are not affected.
func TestDenyOnPanic(t *testing.T) {
	tables := state.New(state.Options{})
	g := query.New(tables.DB, query.Options{Workers: 1})
	services := service.Define(g, tables)
	rules := traffic.Define(g, tables, services)
	q := authz.Define(g, tables, scope.Define(g, tables, services, rules))
	bad := api.Key{Kind: api.KindRequestAuthentication, Namespace: "a", Name: "bad"}
	g.Commit(func(tx *store.Txn) {
		// Validation refuses a rule that is null. If one came through, the translation would panic.
		tables.Security.Authentications.Set(tx, bad, &policies.Authentication{
			Object: bad, Spec: &security.RequestAuthentication{JwtRules: []*security.JWTRule{nil}},
		})
		tables.Security.Selections.Set(tx, bad, selected.Workloads{Labels: mesh.LabelsOf(map[string]string{"app": "a"})})
	})
	show := func(k authz.Key) string {
		f := q.Filters(g.Glance(), k)
		var b strings.Builder
		for _, one := range f.HTTP {
			b.WriteString(prototext.Format(one))
		}
		for _, one := range f.TCP {
			b.WriteString(prototext.Format(one))
		}
		return b.String()
	}
	if got := show(authz.Key{Policies: policy.Set{Selected: intern.Of(bad)}}); strings.Count(got, "deny-because-of-a-bug") == 0 {
		t.Errorf("the workload does not deny:\n%s", got)
	}
	if got := show(authz.Key{}); got != "" {
		t.Errorf("another workload has filters:\n%s", got)
	}
}

// TestManyPolicies checks that ten thousand policies that select other workloads cost a workload nothing, and that ten thousand that
// apply to one are all in force, without a fault.
func TestManyPolicies(t *testing.T) {
	const many = 10000
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("all=%t", all), func(t *testing.T) {
			w := meshtest.New(t)
			var b strings.Builder
			for i := range many {
				selector := fmt.Sprintf("selector: {matchLabels: {app: other, n: n%d}}, ", i)
				if all {
					selector = ""
				}
				fmt.Fprintf(&b, "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p%d, namespace: a}\n"+
					"spec: {%srules: [{to: [{operation: {paths: [/%d]}}]}]}\n", i, selector, i)
			}
			w.Load(b.String())
			s := w.State(w.Connect(meshtest.Node(t, "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local", `{"LABELS": {"app": "other"}}`)))
			got := meshtest.Print(t, s, func(_ resource.Type, name string) bool { return name == "virtualInbound" })
			// Each chain for HTTP has the rules once. Of other connections the rules know nothing, so an empty list denies them.
			if n := strings.Count(got, "ns[a]-policy["); all && n < many || !all && n > 0 {
				t.Errorf("%d rules", n)
			}
			for _, f := range w.Graph.Faults() {
				t.Errorf("cell failed: %+v", f)
			}
		})
	}
}
