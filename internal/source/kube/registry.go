package kube

import (
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pilotmesh/pilot/internal/api/kube"
)

// livePods selects pods that have not ended. The API server says that the others are deleted.
const livePods = "status.phase!=Succeeded,status.phase!=Failed"

// watchRegistry starts to watch the kinds of the service registry.
func (r *run) watchRegistry() {
	c, to := r.converter, r.clients
	r.namespaces = r.registry("namespaces", kube.KindNamespace, func(o runtime.Object) content { return c.Namespace(&o.(*metav1.PartialObjectMetadata).ObjectMeta) })
	r.namespaces.show = showReady
	r.namespaces.changed = r.look
	r.watch(r.namespaces, to.partial(core.SchemeGroupVersion.WithResource("namespaces"), filter{}))

	nodes := r.registry("nodes", kube.KindNode, func(o runtime.Object) content { return c.Node(o.(*core.Node)) })
	nodes.show = showReady
	r.watch(nodes, to.typed(to.core, "nodes", filter{}, &core.Node{}, func() runtime.Object { return &core.NodeList{} }))

	r.watch(r.registry("services", kube.KindService, func(o runtime.Object) content { return some(c.Service(o.(*core.Service))) }),
		to.typed(to.core, "services", filter{}, &core.Service{}, func() runtime.Object { return &core.ServiceList{} }))
	pods := r.registry("pods", kube.KindPod, func(o runtime.Object) content { return some(c.Pod(o.(*core.Pod))) })
	pods.show = showPod
	r.watch(pods, to.typed(to.core, "pods", filter{fields: livePods}, &core.Pod{}, func() runtime.Object { return &core.PodList{} }))
	r.watch(r.registry("endpointslices", kube.KindEndpointSlice, func(o runtime.Object) content { return some(c.Slice(o.(*discovery.EndpointSlice))) }),
		to.typed(to.discovery, "endpointslices", filter{}, &discovery.EndpointSlice{}, func() runtime.Object { return &discovery.EndpointSliceList{} }))
}

// showReady shows a value that is in no namespace when it is known which namespaces count.
func showReady(_ name, c content, v *view) shown {
	if !v.ready {
		return shown{}
	}
	return shown{value: c.(kube.Value)}
}

// showPod shows a pod of a namespace that is selected; of others only agents of a CNI plugin, which are often in a namespace of the system.
func showPod(n name, c content, v *view) shown {
	p := c.(*kube.Pod)
	switch {
	case v.namespaced(n.namespace):
		return shown{value: p}
	case v.ready && p.Captures:
		return shown{value: &kube.Pod{Node: p.Node, Captures: true, Unselected: true}}
	}
	return shown{}
}

// registry returns a table of values in namespaces. It is the one that exists, if the source is reconnected.
func (r *run) registry(what, kind string, convert func(runtime.Object) content) *table {
	for t := range r.tables {
		if t.what == what {
			return t
		}
	}
	return &table{
		what: what, kind: kind, cluster: r.o.Cluster, convert: convert, merge: mergeValues,
		show: func(n name, c content, v *view) shown {
			if !v.namespaced(n.namespace) {
				return shown{}
			}
			return shown{value: c.(kube.Value)}
		},
	}
}

// some returns a value as content, and nil without a type for nil.
func some[V any](v *V) content {
	if v == nil {
		return nil
	}
	return v
}

func mergeValues(old, is content) content {
	if old.(kube.Value).Same(is.(kube.Value)) {
		return old
	}
	return is
}
