package kube

import (
	"maps"
	"slices"
	"strings"

	meshconfig "istio.io/api/mesh/v1alpha1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pilotmesh/pilot/internal/source/object"
)

// remoteLabel is the label of the Secrets that describe remote clusters.
const remoteLabel = "istio/multiCluster=true"

// Remote describes the remote clusters, as configured in the cluster of the control plane.
type Remote struct {
	// Secrets are the Secrets that describe remote clusters, sorted by name.
	Secrets []Secret
	// Mesh is the mesh configuration in force, whose discoverySelectors count for remote clusters, too.
	Mesh *meshconfig.MeshConfig
}

// Secret is a Secret that describes remote clusters.
type Secret struct {
	Namespace, Name string
	// Created is metadata.creationTimestamp in microseconds since 1970.
	Created int64
	// Clusters are the kubeconfigs by the ID of the cluster.
	Clusters map[string]Kubeconfig
}

// Kubeconfig is a kubeconfig with credentials. It prints as a remark, so that no log and no page shows them by accident.
type Kubeconfig []byte

const hidden = "(a kubeconfig, not shown)"

// String returns a remark.
func (Kubeconfig) String() string { return hidden }

// GoString returns a remark.
func (Kubeconfig) GoString() string { return hidden }

// MarshalText returns a remark.
func (Kubeconfig) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// watchSecrets starts to watch the Secrets that describe remote clusters.
func (r *run) watchSecrets() {
	c := r.clients
	r.secrets = &table{what: "secrets", changed: r.tellRemote}
	r.secrets.convert = func(o runtime.Object) content {
		s := o.(*core.Secret)
		out := &Secret{Namespace: s.Namespace, Name: s.Name, Created: object.Created(s.ObjectMeta), Clusters: map[string]Kubeconfig{}}
		for cluster, kubeconfig := range s.Data {
			out.Clusters[cluster] = kubeconfig
		}
		return out
	}
	r.secrets.merge = func(old, is content) content {
		was, now := old.(*Secret), is.(*Secret)
		if was.Created == now.Created && maps.EqualFunc(was.Clusters, now.Clusters, slices.Equal[Kubeconfig]) {
			return old
		}
		return is
	}
	f := filter{namespace: r.o.RemoteNamespace, labels: remoteLabel}
	r.watch(r.secrets, c.typed(c.core, "secrets", f, &core.Secret{}, func() runtime.Object { return &core.SecretList{} }))
}

// tellRemote calls Options.Remote with the remote clusters, once their Secrets and the mesh configuration are known.
func (r *run) tellRemote() {
	if r.secrets == nil || r.mesh == nil || !r.secrets.listed && !r.secrets.excused {
		return
	}
	out := Remote{Mesh: r.mesh}
	for _, c := range r.secrets.rows {
		out.Secrets = append(out.Secrets, *c.(*Secret))
	}
	slices.SortFunc(out.Secrets, func(a, b Secret) int { return strings.Compare(a.Name, b.Name) })
	r.o.Remote(out)
}
