package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// Limits of reading a cluster.
const (
	pageSize = 500
	queries  = 100
)

// Read reads the configuration of a mesh of Istio from a cluster: all objects of Istio's kinds and of the Gateway API, Ingresses, Namespaces, and the
// Deployments, DaemonSets and mesh configuration in the namespace of its control plane. It returns the missing parts, with reasons. An error means that the
// cluster cannot be read at all.
func (m *Mesh) Read(ctx context.Context, access *rest.Config, namespace string) (left []string, err error) {
	access = rest.AddUserAgent(rest.CopyConfig(access), "pilotctl")
	access.QPS, access.Burst = queries, 2*queries
	access.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("a client for the cluster: %w", err)
	}
	core, err := kubeclient.NewCore(access)
	if err != nil {
		return nil, fmt.Errorf("a client for the cluster: %w", err)
	}
	resources, left, err := kinds(ctx, core.RESTClient())
	if err != nil {
		return nil, fmt.Errorf("the kinds of the cluster: %w; is this the right cluster (--context)?", err)
	}
	for _, r := range resources {
		if err := m.list(ctx, client.Resource(r), r.Resource); err != nil {
			left = append(left, err.Error())
		}
	}
	for _, r := range []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "daemonsets"},
	} {
		if err := m.list(ctx, client.Resource(r).Namespace(namespace), r.Resource); err != nil {
			left = append(left, err.Error())
		}
	}
	return left, errors.Join(m.settings(ctx, client, namespace, &left), ctx.Err())
}

// list adds all objects of a resource.
func (m *Mesh) list(ctx context.Context, client dynamic.ResourceInterface, resource string) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := client.List(ctx, options)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", resource, err)
		}
		for i := range page.Items {
			if err := m.add(&page.Items[i]); err != nil {
				return err
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// add adds an object, as if it were a file.
func (m *Mesh) add(o *unstructured.Unstructured) error {
	o.SetManagedFields(nil)
	unstructured.RemoveNestedField(o.Object, "status")
	body, err := json.Marshal(o.Object)
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
	}
	m.File("cluster", body)
	return nil
}

// settings adds the mesh configuration.
func (m *Mesh) settings(ctx context.Context, client dynamic.Interface, namespace string, left *[]string) error {
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace)
	o, err := maps.Get(ctx, "istio", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		*left = append(*left, fmt.Sprintf("the mesh configuration: there is no ConfigMap istio in the namespace %s; name the namespace of Istio with --namespace", namespace))
		return nil
	case err != nil:
		*left = append(*left, fmt.Sprintf("the mesh configuration: %v", err))
		return nil
	}
	text, _, err := unstructured.NestedString(o.Object, "data", "mesh")
	if err != nil {
		return fmt.Errorf("the ConfigMap istio: %w", err)
	}
	m.Analysis.Mesh("ConfigMap "+namespace+"/istio", []byte(text))
	return nil
}
