package settings

import (
	"slices"
	"strings"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// writeServiceSettings replaces the serviceSettings of the mesh configuration. It reports whether they changed.
func (t *Settings) writeServiceSettings(tx *store.Txn, m *meshconfig.MeshConfig) (changed bool) {
	is := Value{Message: &meshconfig.MeshConfig{ServiceSettings: m.GetServiceSettings()}}
	was, ok := t.rows.Peek(serviceSettings)
	t.rows.Set(tx, serviceSettings, is)
	return len(m.GetServiceSettings()) > 0 && !ok || ok && !was.equal(is)
}

// ClusterLocal reports whether clients use only those endpoints of a host that are in their own cluster. The serviceSettings of the mesh
// configuration decide, the narrowest pattern first. By default it is true for the API server, and for the services of kube-system, which
// each cluster has for itself. Only the owner of the store may call it.
func (t *Settings) ClusterLocal(host string) bool {
	v, _ := t.rows.Peek(serviceSettings)
	m, _ := v.Message.(*meshconfig.MeshConfig)
	for pattern := range mesh.NarrowestFirst(host) {
		for _, s := range m.GetServiceSettings() {
			if slices.Contains(s.GetHosts(), pattern) {
				return s.GetSettings().GetClusterLocal()
			}
		}
	}
	suffix := ".svc." + t.domain
	return host == "kubernetes.default"+suffix || strings.HasSuffix(host, ".kube-system"+suffix)
}
