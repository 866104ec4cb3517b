// Package about answers what metrics call the workload of a caller that asks for a certificate.
//
// Invariants: the pod of a caller follows from its token, which its API server binds to the pod. A caller without a pod, on a virtual machine, is the
// workload of a WorkloadEntry with its namespace, its service account and the address that it asks from. The caller's own claims do not count. The names
// are the ones that the reports of clients have of the pod as a server; see mesh.IdentityOf. A certificate does not wait for them longer than patience.
//
// Goroutines: none.
package about

import (
	"cmp"
	"context"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/state"
)

// patience is how long a request for a certificate waits for the loop, which may be busy. A workload needs its certificate, and can do without names.
const patience = time.Second

// Workloads knows the pods of a cluster, and the WorkloadEntries.
type Workloads struct {
	Mesh loop.Inspector
	// Cluster is the cluster whose API server checks tokens.
	Cluster string
}

// About returns the names of the workload of a caller, as mesh.WorkloadIdentity.Text has them. It is empty if its pod or entry is not known or has another
// service account, if several entries differ in the names, or if the loop does not answer in time.
func (w Workloads) About(ctx context.Context, caller identity.Caller) string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	text, err := loop.Look(ctx, w.Mesh, func(v *loop.View) string {
		if caller.Pod.Name != "" {
			return w.pod(v, caller)
		}
		return w.entry(v, caller)
	})
	if err != nil {
		return "" // the loop is busy, or the caller is gone
	}
	return text
}

// pod returns the names of the pod to which the token of a caller is bound.
func (w Workloads) pod(v *loop.View, caller identity.Caller) string {
	pod, ok := v.Tables.Kube.Pods.Peek(api.Key{Kind: kube.KindPod, Namespace: caller.Namespace, Name: caller.Pod.Name, Cluster: w.Cluster})
	if !ok || pod.ServiceAccount != caller.ServiceAccount {
		return ""
	}
	return pod.Identity().Text(w.Cluster)
}

// entry returns the names of the WorkloadEntries at the address of a caller.
func (w Workloads) entry(v *loop.View, caller identity.Caller) (text string) {
	if !caller.From.IsValid() {
		return ""
	}
	r := v.Graph.Glance()
	for k := range v.Tables.WorkloadsAt.Group(r, state.AddressIn{Namespace: caller.Namespace, Address: caller.From.String()}).All() {
		e, ok := v.Tables.Workloads.Get(r, k)
		if !ok || e.ServiceAccount != caller.ServiceAccount {
			continue
		}
		is := e.Identity().Text(cmp.Or(e.Cluster, w.Cluster))
		if text != "" && text != is {
			return ""
		}
		text = is
	}
	return text
}
