package cluster

import (
	"context"
	"fmt"
	"strings"

	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// maxMissed is how many tests in a row must fail before validation fails open: one may be lost while a replica ends.
const maxMissed = 2

// policy is the failurePolicy of the checking webhooks, as tests decide it. The zero value leaves them alone.
type policy struct {
	is     registration.FailurePolicyType
	missed int
}

// saw takes the result of a test, and reports whether the policy has changed.
func (p *policy) saw(answered bool) bool {
	was := p.is
	switch {
	case answered:
		p.is, p.missed = registration.Fail, 0
	case p.missed < maxMissed-1 && p.is != "":
		p.missed++
	default:
		p.is = registration.Ignore
	}
	return p.is != was
}

// probe asks the API server whether it reaches the checking webhook of a control plane.
type probe struct {
	client              dynamic.Interface
	endpoints           *kubeclient.EndpointSlices
	namespace, revision string
	test                SelfTest
}

// SelfTest is the name of the object that a control plane refuses, and the text with which it does.
type SelfTest struct{ Name, Answer string }

func newProbe(config *rest.Config) (*probe, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("a client for the test of the webhooks: %w", err)
	}
	endpoints, err := kubeclient.NewEndpointSlices(config)
	if err != nil {
		return nil, fmt.Errorf("a client for the endpoints of the webhooks: %w", err)
	}
	return &probe{client: client, endpoints: endpoints}, nil
}

// answered makes an object that only this revision refuses, as a dry run. It is in the namespace of the control plane, whose webhook never
// blocks: without an answer, the object is admitted. An error says nothing about the webhook.
func (p *probe) answered(ctx context.Context) (bool, error) {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "spec": map[string]any{"address": "192.0.2.1"},
	}}
	o.SetName(p.test.Name)
	o.SetNamespace(p.namespace)
	o.SetLabels(map[string]string{revisionName: p.revision})
	entries := schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "workloadentries"}
	_, err := p.client.Resource(entries).Namespace(p.namespace).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: manager})
	switch {
	case err == nil:
		return false, nil
	case strings.Contains(err.Error(), p.test.Answer):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, fmt.Errorf("the checking webhook cannot be tested, and its failurePolicy stays as it is: %w; add the rule {apiGroups: [networking.istio.io], resources: [workloadentries], verbs: [create]} to the ClusterRole of the control plane", err)
	}
	return false, fmt.Errorf("the checking webhook cannot be tested, and its failurePolicy stays as it is: %w", err)
}

// others reports whether a service of the control plane has a ready endpoint of another pod.
func (p *probe) others(ctx context.Context, service, pod string) (bool, error) {
	list, err := p.endpoints.In(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + service})
	if err != nil {
		return false, fmt.Errorf("the endpoints of the service %s/%s: %w", p.namespace, service, err)
	}
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			own := e.TargetRef != nil && e.TargetRef.Name == pod
			if !own && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				return true, nil
			}
		}
	}
	return false, nil
}
