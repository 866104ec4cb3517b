package about

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// busy is a loop that answers no request.
type busy struct{}

// Inspect implements loop.Inspector.
func (busy) Inspect(ctx context.Context, _ func(*loop.View)) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestBusyLoop: a request for a certificate continues without names after a moment, and its own time has not ended then.
func TestBusyLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		got := Workloads{Mesh: busy{}}.About(ctx, identity.Caller{Pod: identity.Pod{Name: "reviews-1"}})
		if took := time.Since(began); got != "" || took > patience || ctx.Err() != nil {
			t.Errorf("%q after %v, %v", got, took, ctx.Err())
		}
	})
}

// still is a mesh that does not change.
type still struct{ *meshtest.World }

// Inspect implements loop.Inspector.
func (s still) Inspect(_ context.Context, f func(*loop.View)) error {
	f(&loop.View{Tables: s.Tables, Graph: s.Graph})
	return nil
}

// TestEntries: a caller without a pod has the names of the WorkloadEntries of its namespace that have its address and its account, if they agree.
func TestEntries(t *testing.T) {
	w := meshtest.New(t)
	w.Apply(`
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: one, namespace: shop}
spec: {address: 10.1.0.1, serviceAccount: till, labels: {app: till, version: v2}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: also-one, namespace: shop}
spec: {address: 10.1.0.1, serviceAccount: till, labels: {app: till, version: v2}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: two, namespace: shop}
spec: {address: 10.1.0.2, serviceAccount: till, labels: {app: till, version: v2}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: another-two, namespace: shop}
spec: {address: 10.1.0.2, serviceAccount: till, labels: {app: other}}
`)
	for _, c := range []struct{ namespace, account, address, want string }{
		{"shop", "till", "10.1.0.1", "till/till/v2/till/v2/east"},
		{"shop", "till", "10.1.0.2", ""},
		{"shop", "till", "10.1.0.3", ""},
		{"shop", "other", "10.1.0.1", ""},
		{"bank", "till", "10.1.0.1", ""},
		{"shop", "till", "", ""},
	} {
		caller := identity.Caller{Identity: identity.Identity{TrustDomain: "cluster.local", Namespace: c.namespace, ServiceAccount: c.account}}
		if c.address != "" {
			caller.From = netip.MustParseAddr(c.address)
		}
		if got := (Workloads{Mesh: still{w}, Cluster: "east"}).About(t.Context(), caller); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
