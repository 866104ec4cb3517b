// Package about answers what metrics call the workload of a caller that asks for a certificate.
//
// Invariants: the pod of a caller follows from its token, which its API server binds to the pod; the caller's own claims do not count. The names
// are the ones that the reports of clients have of the pod as a server; see mesh.IdentityOf. A certificate does not wait for them longer than patience.
//
// Goroutines: none.
package about

import (
	"context"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// patience is how long a request for a certificate waits for the loop, which may be busy. A workload needs its certificate, and can do without names.
const patience = time.Second

// Pods knows the pods of a cluster.
type Pods struct {
	Mesh loop.Inspector
	// Cluster is the cluster whose API server checks tokens.
	Cluster string
}

// About returns the names of the pod to which the token of a caller is bound, as mesh.WorkloadIdentity.Text has them. It is empty if the token is bound to
// none, if the pod is not known or has another service account, or if the loop does not answer in time.
func (p Pods) About(ctx context.Context, caller identity.Caller) string {
	if caller.Pod.Name == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	text, err := loop.Look(ctx, p.Mesh, func(v *loop.View) string {
		pod, ok := v.Tables.Kube.Pods.Peek(api.Key{Kind: kube.KindPod, Namespace: caller.Namespace, Name: caller.Pod.Name, Cluster: p.Cluster})
		if !ok || pod.ServiceAccount != caller.ServiceAccount {
			return ""
		}
		return mesh.IdentityOf(pod.Labels, pod.Owner.Name).Text(p.Cluster)
	})
	if err != nil {
		return "" // the loop is busy, or the caller is gone
	}
	return text
}
