// Package impersonation decides which callers may have the certificates of other workloads: agents of a node, such as the agents of
// ambient mode, for the pods of their node.
//
// Invariants: The node of the caller follows from its token, which its API server binds to a pod; the caller's own claims do not
// count. A workload that has no pod on that node is refused.
//
// Goroutines: none.
package impersonation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/state"
)

// Rule decides which callers may have certificates of other workloads. It implements ca.Impersonation.
type Rule struct {
	Mesh loop.Inspector
	// Accounts are the service accounts of agents of nodes, as NAMESPACE/ACCOUNT.
	Accounts []string
	// Cluster is the cluster whose API server checks tokens.
	Cluster string
}

// Allow returns an error if the caller may not have the certificate of a workload.
func (r Rule) Allow(ctx context.Context, caller identity.Caller, id identity.Identity) error {
	if own := caller.Namespace + "/" + caller.ServiceAccount; !slices.Contains(r.Accounts, own) {
		return fmt.Errorf("the service account %s is not allowed to have certificates of other workloads (CA_TRUSTED_NODE_ACCOUNTS)", own)
	}
	if caller.Pod.Name == "" {
		return fmt.Errorf("the %s of the caller is not bound to a pod, so its node is not known; show a token that is", caller.Means)
	}
	var node string
	found, err := loop.Look(ctx, r.Mesh, func(v *loop.View) bool {
		own, ok := v.Tables.Kube.Pods.Peek(api.Key{Kind: kube.KindPod, Namespace: caller.Namespace, Name: caller.Pod.Name, Cluster: r.Cluster})
		if !ok || own.Node == "" || own.ServiceAccount != caller.ServiceAccount {
			return false
		}
		node = own.Node
		for k := range v.Tables.Kube.PodsOn.Peek(state.ClusterNode{Cluster: r.Cluster, Node: node}).All() {
			if pod, ok := v.Tables.Kube.Pods.Peek(k); ok && k.Namespace == id.Namespace && pod.ServiceAccount == id.ServiceAccount {
				return true
			}
		}
		return false
	})
	switch {
	case err != nil:
		return err
	case node == "":
		return errors.New("the pod of the caller is not known, or runs on no node yet")
	case caller.Pod.Node != "" && caller.Pod.Node != node:
		return errors.New("the pod of the caller is not on the node for which its token was issued")
	case !found:
		return fmt.Errorf("no pod of the service account %s/%s runs on the caller's node %s", id.Namespace, id.ServiceAccount, node)
	}
	return nil
}
