package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// Machines reads the objects that a virtual machine needs to join the mesh of a cluster, with the rights of the operator who runs the command.
type Machines struct {
	core    *kubeclient.Core
	dynamic dynamic.Interface
}

// NewMachines returns a reader of an API server. It sends no request.
func NewMachines(config *rest.Config) (*Machines, error) {
	own := rest.AddUserAgent(rest.CopyConfig(config), "pilotctl")
	own.WarningHandler = rest.NoWarnings{}
	typed, err := kubeclient.NewCore(own)
	if err != nil {
		return nil, fmt.Errorf("a client for the cluster: %w", err)
	}
	untyped, err := dynamic.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("a client for WorkloadGroups: %w", err)
	}
	return &Machines{typed, untyped}, nil
}

// Group returns a WorkloadGroup as JSON.
func (m *Machines) Group(ctx context.Context, namespace, name string) ([]byte, error) {
	at := m.dynamic.Resource(schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "workloadgroups"}).Namespace(namespace)
	u, err := at.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no WorkloadGroup %s in the namespace %s; create it (pilotctl workload group create), or name a file with it (--file): %w", name, namespace, err)
	case err != nil:
		return nil, fmt.Errorf("reading the WorkloadGroup %s in the namespace %s: %w", name, namespace, err)
	}
	u.SetManagedFields(nil)
	return json.Marshal(u.Object)
}

// MeshConfig returns the mesh configuration of a revision; nil if there is none.
func (m *Machines) MeshConfig(ctx context.Context, namespace, revision string) ([]byte, error) {
	name := "istio"
	if revision != "" && revision != "default" {
		name += "-" + revision
	}
	c, err := m.core.ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the mesh configuration, the ConfigMap %s in the namespace %s: %w", name, namespace, err)
	}
	return []byte(c.Data["mesh"]), nil
}

// MachineRoots returns the roots that vouch for the control plane, which it writes into each namespace.
func (m *Machines) MachineRoots(ctx context.Context, namespace string) ([]byte, error) {
	c, err := m.core.ConfigMaps(namespace).Get(ctx, RootsMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no ConfigMap %s in the namespace %s: the control plane writes it within seconds; is the namespace right, and does the control plane run? %w", RootsMap, namespace, err)
	case err != nil:
		return nil, fmt.Errorf("reading the roots of the mesh, the ConfigMap %s in the namespace %s: %w", RootsMap, namespace, err)
	case c.Data[rootsKey] == "":
		return nil, fmt.Errorf("the ConfigMap %s in the namespace %s has no %s", RootsMap, namespace, rootsKey)
	}
	return []byte(c.Data[rootsKey]), nil
}

// Token asks for a token of a service account.
func (m *Machines) Token(ctx context.Context, namespace, account, audience string, valid time.Duration) ([]byte, error) {
	seconds := int64(valid / time.Second)
	answer, err := m.core.Tokens(namespace, account).Create(ctx, &authentication.TokenRequest{
		Spec: authentication.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no service account %s in the namespace %s; create it (kubectl create serviceaccount %s -n %s), or correct serviceAccount in the template of the %s: %w",
			account, namespace, account, namespace, api.KindWorkloadGroup, err)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("a token of the service account %s/%s: %w; ask a user who may create serviceaccounts/token there", namespace, account, err)
	case err != nil:
		return nil, fmt.Errorf("a token of the service account %s/%s: %w", namespace, account, err)
	}
	return []byte(answer.Status.Token), nil
}

// Addresses returns the addresses at which a service is reached from outside the cluster; none if there is no such service, or if it has
// none.
func (m *Machines) Addresses(ctx context.Context, namespace, service string) ([]string, error) {
	s, err := m.core.Services(namespace).Get(ctx, service, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the service %s in the namespace %s: %w", service, namespace, err)
	}
	return outside(s), nil
}

func outside(s *core.Service) []string {
	var list []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		if i.IP != "" {
			list = append(list, i.IP)
		}
	}
	if len(list) == 0 {
		return s.Spec.ExternalIPs
	}
	return list
}
