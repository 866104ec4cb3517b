package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/pilotmesh/pilot/internal/agent/cni/wire"
	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// resync is how often pods are handed to observers again: a repair that failed is tried again at the latest then.
const resync = time.Minute

// Pods are the pods of one node.
type Pods struct {
	client   *kubeclient.Core
	informer cache.SharedIndexInformer
}

// NewPods returns the pods of a node. Run must run, or each question goes to the API server.
func NewPods(client *kubeclient.Core, node string) (*Pods, error) {
	list := cache.NewListWatchFromClient(client.RESTClient(), "pods", metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", node))
	p := &Pods{client: client, informer: cache.NewSharedIndexInformer(list, &corev1.Pod{}, resync, cache.Indexers{})}
	err := p.informer.SetTransform(func(object any) (any, error) {
		if pod, ok := object.(*corev1.Pod); ok {
			pod.ManagedFields = nil
		}
		return object, nil
	})
	return p, err
}

// Observe calls f for each present pod, and for each one that appears or changes. It must be called before Run.
func (p *Pods) Observe(f func(*corev1.Pod)) error {
	seen := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok {
			f(pod)
		}
	}
	_, err := p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, object any) { seen(object) }})
	return err
}

// Run watches until ctx ends.
func (p *Pods) Run(ctx context.Context) error {
	p.informer.RunWithContext(ctx)
	return nil
}

// Synced reports whether the pods have been read once.
func (p *Pods) Synced() bool { return p.informer.HasSynced() }

// Get returns a pod as the watch has it, or nil.
func (p *Pods) Get(namespace, name string) *corev1.Pod {
	object, found, err := p.informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !found {
		return nil
	}
	pod, _ := object.(*corev1.Pod)
	return pod
}

// Find returns the pod that a request is about. The containers of a pod never change, so that the watch is as good as the API server if it has a
// pod with this UID.
func (p *Pods) Find(ctx context.Context, r wire.Request) (*corev1.Pod, error) {
	if pod := p.Get(r.Namespace, r.Name); pod != nil && r.UID != "" && string(pod.UID) == r.UID {
		return pod, nil
	}
	pod, err := p.client.Pods(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("the API server has not returned the pod: %w", err)
	}
	if r.UID != "" && string(pod.UID) != r.UID {
		return nil, fmt.Errorf("the pod has been replaced: its UID is %s, not %s", pod.UID, r.UID)
	}
	return pod, nil
}
