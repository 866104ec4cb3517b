package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// Nodes removes the taint of nodes with a ready agent of the CNI plugin.
type Nodes struct {
	client *kubeclient.Resource[*core.Node, *core.NodeList]
}

// NewNodes returns a writer to an API server. It sends no request.
func NewNodes(config *rest.Config) (*Nodes, error) {
	client, err := kubeclient.NewCore(rest.AddUserAgent(rest.CopyConfig(config), "nodes"))
	if err != nil {
		return nil, fmt.Errorf("a client for nodes: %w", err)
	}
	return &Nodes{client.Nodes()}, nil
}

// RemoveTaint implements untaint.Target. The API server refuses the change if the taints have changed since they were read.
func (n *Nodes) RemoveTaint(ctx context.Context, name string) error {
	is, err := n.client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return explainNode("get", name, err)
	}
	left := slices.DeleteFunc(slices.Clone(is.Spec.Taints), func(t core.Taint) bool { return t.Key == kube.UncapturedTaint })
	if len(left) == len(is.Spec.Taints) {
		return nil
	}
	type step struct {
		Op    string       `json:"op"`
		Path  string       `json:"path"`
		Value []core.Taint `json:"value"`
	}
	const at = "/spec/taints"
	patch, err := json.Marshal([]step{{"test", at, is.Spec.Taints}, {"replace", at, left}})
	if err != nil {
		return fmt.Errorf("the taints of the node %s: %w", name, err)
	}
	_, err = n.client.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: manager})
	return explainNode("patch", name, err)
}

// explainNode adds the remedy to an error; nil for errors that pass.
func explainNode(verb, name string, err error) error {
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return nil // it is gone, or another client writes
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; set taint.enabled in the values of the chart, or add the rule {apiGroups: [\"\"], resources: [nodes], verbs: [get, patch]} to the ClusterRole of the control plane", err)
	}
	return fmt.Errorf("%s the node %s: %w", verb, name, err)
}
